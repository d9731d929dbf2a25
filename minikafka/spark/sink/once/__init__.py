"""Writes of which each micro-batch, or each table, is one transaction.

The tasks encode their rows and pass them to the driver. The driver writes them and a marker in one transaction.
docs/spark.md has the protocol, and what it does at each death.

The tasks do not write themselves. Kafka numbers the batches of a producer for each partition, so two tasks cannot write
to one partition with the same producer. With a producer for each task there are several transactions: one may time out
after another was committed. Then a part of the micro-batch would be missing, and a repetition would write the other
part twice.
"""
