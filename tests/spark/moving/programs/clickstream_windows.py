"""Counts the clicks on each page in windows of five minutes, with late clicks dropped."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, from_json, window
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("ClickstreamWindows").getOrCreate()

schema = StructType(
    [
        StructField("user_id", StringType()),
        StructField("page", StringType()),
        StructField("event_time", TimestampType()),
    ]
)
raw = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-clicks")
    .option("startingOffsets", "earliest")
    .option("failOnDataLoss", "false")
    .option("maxOffsetsPerTrigger", 2)
    .option("kafka.group.id", "clickstream")
    .load()
)
clicks = raw.select(from_json(col("value").cast("string"), schema).alias("click")).select("click.*")
per_page = (
    clicks.withWatermark("event_time", "2 minutes")
    .groupBy(window("event_time", "5 minutes"), "page")
    .agg(count("*").alias("clicks"))
    .select("window.start", "page", "clicks")
)

query = (
    per_page.writeStream.outputMode("append")
    .format("parquet")
    .option("path", directory + "/clicks")
    .option("checkpointLocation", directory + "/clicks.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.read.parquet(directory + "/clicks").selectExpr(
    "cast(start AS STRING)", "page", "clicks"
)
