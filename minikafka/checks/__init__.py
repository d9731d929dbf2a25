"""Checks of what clients and brokers did: histories of clients compared with the logs of all replicas.

`histories.py` has the events of clients, their reader and their writer. `delivery.py` compares sends with what a
consumer read, `isolation/` transactions with logs, and `replicas/` single records with logs, in Spark.
"""
