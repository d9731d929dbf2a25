"""The isolation checker: histories of transactional clients compared with the logs of all replicas, without I/O.

`operations.py` joins the events of a history (`checks/histories.py`), `logs.py` reads logs, and `verdict.py` runs all
checks. The checker does not use the brokers' code for aborted transactions, so that an error there is found.
"""
