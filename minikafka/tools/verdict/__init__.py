"""The verdict on clients: their histories compared with the logs of a cluster.

`logs.py` reads logs from brokers and `directories.py` from files. `judge.py` makes the check, and `report.py` has its
result.
"""
