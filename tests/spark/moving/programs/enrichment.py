"""Enriches the payments of a topic with the customers of a static table."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast, col

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("Enrichment").getOrCreate()

customers = spark.createDataFrame([("c1", "Ada"), ("c2", "Grace")], ["customer_id", "name"])
payments = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-payments")
    .option("startingOffsets", "earliest")
    .option("minPartitions", "4")
    .load()
    .select(
        col("key").cast("string").alias("customer_id"),
        col("value").cast("string").cast("int").alias("amount"),
    )
)
enriched = payments.join(broadcast(customers), "customer_id", "left_outer")
query = (
    enriched.writeStream.outputMode("append")
    .format("memory")
    .queryName("enriched")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.table("enriched")
