"""The history checker: producers' histories compared with the logs of all replicas."""
