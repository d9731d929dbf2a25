"""The number of cores on which Spark runs tasks, for the processes that plan tasks.

Spark plans the tasks of a Python source in a process of its own, which has no SparkContext. `register` passes the
number to these processes in an environment variable. In a session without `register`, the number of processors
of the driver's machine is used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

VARIABLE: Final = "MINIKAFKA_SPARK_CORES"


def known() -> int:
    """Return the number of cores that `register` passed to this process, or the number of this machine's cores."""
    found = os.environ.get(VARIABLE, "")
    return max(int(found), 1) if found.isdecimal() else os.cpu_count() or 1


def of_session(context: SparkContext) -> int:
    """Return the number of cores of a session. Executors that start later count if the settings name them."""
    setting = context.getConf().get
    executors = int(setting("spark.executor.instances") or 0)
    planned = executors * int(setting("spark.executor.cores") or 1)
    limit = int(setting("spark.cores.max") or 0)
    return max(context.defaultParallelism, planned, limit)
