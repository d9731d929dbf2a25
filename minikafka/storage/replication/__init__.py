"""Replication of partitions, as leader and as follower: ISR, high watermark, leader epochs, waiting requests."""
