"""`kafka-home`: a folder with the scripts of a Kafka distribution, and what these scripts run."""
