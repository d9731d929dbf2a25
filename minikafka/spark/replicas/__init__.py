"""The logs of replicas, read by Spark from the files of their log directories, without a broker."""
