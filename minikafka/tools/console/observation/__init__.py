"""The observation of a cluster while somebody looks: its brokers, partitions, problems and ledgers."""
