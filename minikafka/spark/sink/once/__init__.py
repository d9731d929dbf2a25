"""Writes of which each micro-batch, or each table, is one transaction.

The tasks encode their rows and pass them to the driver. The driver writes them and a marker in one transaction.
docs/spark.md has the protocol, and what it does at each death.
"""
