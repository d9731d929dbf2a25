"""Joins the impressions of advertisements with the clicks on them within an hour."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("AdMonetization").getOrCreate()


def topic(name):
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .load()
    )


impressions = (
    topic("tutorial-impressions")
    .selectExpr("CAST(value AS STRING) AS impression_ad", "timestamp AS impression_time")
    .withWatermark("impression_time", "10 minutes")
)
clicks = (
    topic("tutorial-ad-clicks")
    .selectExpr("CAST(value AS STRING) AS click_ad", "timestamp AS click_time")
    .withWatermark("click_time", "20 minutes")
)
joined = impressions.join(
    clicks,
    expr(
        """
        click_ad = impression_ad AND
        click_time >= impression_time AND
        click_time <= impression_time + interval 1 hour
        """
    ),
)
query = joined.writeStream.format("memory").queryName("joined").trigger(availableNow=True).start()
query.awaitTermination()
result = spark.sql("SELECT impression_ad, CAST(click_time - impression_time AS STRING) FROM joined")
