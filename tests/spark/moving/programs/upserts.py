"""Keeps the newest state of each account in a database, with foreachBatch."""

import sqlite3
import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql.functions import col, row_number

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("Upserts").getOrCreate()
database = sqlite3.connect(f"{directory}/accounts.db", check_same_thread=False)
database.execute("CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INT)")


def upsert(batch, batch_id):
    newest = Window.partitionBy("key").orderBy(col("offset").desc())
    rows = (
        batch.withColumn("rank", row_number().over(newest))
        .where("rank = 1")
        .selectExpr("CAST(key AS STRING)", "CAST(CAST(value AS STRING) AS INT)")
        .collect()
    )
    with database:
        database.executemany(
            "INSERT INTO accounts VALUES (?, ?) ON CONFLICT DO UPDATE SET balance = excluded.balance",
            [tuple(row) for row in rows],
        )


query = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-accounts")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 4)
    .load()
    .writeStream.foreachBatch(upsert)
    .option("checkpointLocation", f"{directory}/accounts.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.createDataFrame(
    database.execute("SELECT * FROM accounts").fetchall(), "id STRING, balance INT"
)
database.close()
