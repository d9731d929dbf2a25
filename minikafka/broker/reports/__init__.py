"""The metrics of a broker, and its reports for `minikafka status` and `minikafka why`."""
