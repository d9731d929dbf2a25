"""Audits all topics of a name pattern, a few records at a time."""

import sys

from pyspark.sql import SparkSession

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("PatternAudit").getOrCreate()
audited = []


def audit(batch, batch_id):
    counts = batch.groupBy("topic", "partition").count()
    audited.extend((batch_id, *row) for row in counts.collect())


query = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribePattern", "tutorial-audit-.*")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "6")
    .option("minOffsetsPerTrigger", "2")
    .option("maxTriggerDelay", "1m")
    .load()
    .writeStream.foreachBatch(audit)
    .option("checkpointLocation", f"{directory}/audit.checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.createDataFrame(audited, "batch BIGINT, topic STRING, partition INT, records BIGINT")
