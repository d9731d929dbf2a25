"""The check of replicas (`minikafka pipeline check`): their logs compared with each other and with histories."""
