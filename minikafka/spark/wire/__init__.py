"""A blocking client of the few Kafka requests that the Spark package needs."""
