"""The vocabulary every other package speaks; imports nothing of minikafka."""
