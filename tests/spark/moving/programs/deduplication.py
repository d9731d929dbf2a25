"""Drops repeated events of devices by their id, within a watermark."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, get_json_object

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("Deduplication").getOrCreate()

events = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("assign", '{"tutorial-devices":[0,1]}')
    .option("startingOffsets", '{"tutorial-devices":{"0":1,"1":-2}}')
    .load()
)
unique = (
    events.select(
        get_json_object(col("value").cast("string"), "$.id").alias("id"),
        col("key").cast("string").alias("device"),
        "timestamp",
    )
    .withWatermark("timestamp", "1 hour")
    .dropDuplicates(["id", "device"])
)
query = (
    unique.writeStream.format("memory")
    .queryName("unique_events")
    .outputMode("append")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.sql("SELECT device, id FROM unique_events")
