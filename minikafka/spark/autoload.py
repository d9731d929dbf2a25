"""The module through which Spark finds the data source automatically.

The wheel, the editable install and the archive of `minikafka pipeline package` contain a copy of this file
as the top-level module `pyspark_minikafka`. Spark imports every module whose name begins with `pyspark_` and
registers the module's `DefaultSource`.
"""

from __future__ import annotations

from minikafka.spark.datasource import MinikafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
