"""Spark jobs for people: what `minikafka pipeline` runs, on the driver."""
