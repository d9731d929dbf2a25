"""Counts the words of the lines in a topic."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

bootstrap_servers, directory = sys.argv[1:]
spark = SparkSession.builder.appName("StructuredKafkaWordCount").getOrCreate()

lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", "tutorial-lines")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("CAST(value AS STRING)")
)
words = lines.select(explode(split(lines.value, " ")).alias("word"))
word_counts = words.groupBy("word").count()

query = (
    word_counts.writeStream.outputMode("complete")
    .format("memory")
    .queryName("word_counts")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
result = spark.table("word_counts")
