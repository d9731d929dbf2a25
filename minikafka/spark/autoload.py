"""The module that Spark finds and registers without a call.

Wheel, editable install and the archive of `minikafka pipeline package` hold a copy of this file as the
top-level module `pyspark_minikafka`: Spark imports every module of that prefix and registers its
`DefaultSource`.
"""

from __future__ import annotations

from minikafka.spark.datasource import MinikafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
