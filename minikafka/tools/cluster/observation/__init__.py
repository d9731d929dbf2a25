"""What a cluster does, found from outside: its processes, the answers of its brokers, and the causes of problems."""
