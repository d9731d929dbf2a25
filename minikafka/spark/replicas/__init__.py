"""Reads the logs of replicas in Spark, from the files in log directories, without a broker."""
