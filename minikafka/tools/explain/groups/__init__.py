"""The history of a consumer group, and the causes of its problems."""
