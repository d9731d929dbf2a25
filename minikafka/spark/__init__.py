"""The Spark data source `minikafka`; imports nothing of minikafka but base: executors carry it alone."""
