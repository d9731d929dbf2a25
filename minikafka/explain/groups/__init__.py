"""The history of a consumer group, and what holds it up."""
