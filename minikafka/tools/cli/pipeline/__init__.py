"""The commands of `minikafka pipeline`, one module each."""
