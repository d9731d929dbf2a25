"""The clients of a broker: who may log in, what they may do, and how much. The pure part is `minikafka.security`."""
