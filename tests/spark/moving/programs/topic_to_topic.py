"""Copies temperatures in Celsius to a topic in Fahrenheit, with their keys and headers."""

import sys

from pyspark.sql import SparkSession

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("TopicToTopic").getOrCreate()

celsius = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-celsius")
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .load()
)
fahrenheit = celsius.selectExpr(
    "key", "CAST(CAST(CAST(value AS STRING) AS DOUBLE) * 1.8 + 32 AS STRING) AS value", "headers"
)
query = (
    fahrenheit.writeStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("kafka.compression.type", "lz4")
    .option("kafka.linger.ms", "20")
    .option("kafka.acks", "all")
    .option("topic", "tutorial-fahrenheit")
    .option("checkpointLocation", f"{directory}/fahrenheit.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-fahrenheit")
    .option("includeHeaders", "true")
    .load()
    .selectExpr(
        "CAST(key AS STRING)",
        "CAST(value AS STRING)",
        "partition",
        "concat_ws(',', transform(headers, one -> concat(one.key, '=', CAST(one.value AS STRING))))",
    )
)
