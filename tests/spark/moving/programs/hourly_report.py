"""Reports the sales of one hour, which a batch read selects by time."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("HourlyReport").getOrCreate()

ending = json.dumps({"tutorial-sales": {"0": 1_700_003_600_000, "1": 1_700_003_600_000}})
sales = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-sales")
    .option("startingTimestamp", "1700000000000")
    .option("startingOffsetsByTimestampStrategy", "latest")
    .option("endingOffsetsByTimestamp", ending)
    .load()
)
result = (
    sales.select(
        col("key").cast("string").alias("shop"),
        expr("CAST(CAST(value AS STRING) AS INT)").alias("amount"),
    )
    .groupBy("shop")
    .sum("amount")
)
