"""Parses orders as JSON, separates those that are damaged, and writes the others as Parquet files by country."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("OrdersETL").getOrCreate()

orders = (
    spark.readStream.format("kafka")
    .options(
        **{
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": "tutorial-orders",
            "startingOffsets": "earliest",
            "groupIdPrefix": "etl",
            "kafkaConsumer.pollTimeoutMs": "60000",
            "fetchOffset.numRetries": "5",
            "kafka.max.partition.fetch.bytes": "1048576",
        }
    )
    .load()
    .withColumn("json", f.col("value").cast("string"))
    .withColumn("order", f.from_json("json", "id BIGINT, country STRING, amount DOUBLE"))
    .where("order.id IS NOT NULL")
    .select("order.*", "partition", "offset")
)

(
    orders.writeStream.format("parquet")
    .partitionBy("country")
    .option("path", f"{directory}/orders")
    .option("checkpointLocation", f"{directory}/orders.checkpoint")
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)
result = (
    spark.read.parquet(f"{directory}/orders")
    .groupBy("country")
    .agg(f.count("id").alias("orders"), f.sum("amount").alias("amount"))
)
