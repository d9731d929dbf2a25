"""The Python processes of a local Spark session, which are forks of one process."""
