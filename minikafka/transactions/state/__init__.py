"""The data of the coordinator: transactional ids, their records, and the partitions that this broker has loaded."""
