"""The end of the Spark session of a pipeline."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import MagicMock

from minikafka.spark.pipelines.session import context


def test_error_of_a_stopped_java_process_is_not_printed(monkeypatch):
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    spark = MagicMock()
    spark.streams.active = []
    spark.sparkContext.cancelAllJobs.side_effect = RuntimeError("stopped SparkContext")
    context._stop(spark)
    spark.sparkContext.cancelAllJobs.assert_called_once()
    assert printed == []
