"""The Spark data source `minikafka`; imports only `minikafka.base`, so that executors need nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("minikafka")` in a session whose Spark has not found it by itself.

    Spark finds an installed minikafka; a source checkout on the path is not found.
    """
    from minikafka.spark.datasource import MinikafkaDataSource

    spark.dataSource.register(MinikafkaDataSource)
