"""The Spark data source `minikafka`; imports only `minikafka.base`, so that executors need nothing else."""
