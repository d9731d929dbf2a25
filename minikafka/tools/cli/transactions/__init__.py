"""`minikafka transactions`: the functions of Kafka's kafka-transactions.sh."""
