"""A blocking client for the few Kafka requests that the Spark package needs."""
