"""The Spark data source ; imports nothing of minikafka but base, so executors can carry it."""
