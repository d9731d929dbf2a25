"""The Spark jobs that `minikafka pipeline` runs; this code runs on the driver."""
