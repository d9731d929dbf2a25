"""Kafka's formatters of the records of internal topics, which kafka-console-consumer uses."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from support.clusters.apache_kafka import run_java

from minikafka.base.coordinators import KeyValue

_PROGRAM: Final = Path(__file__).parents[1] / "java" / "Formatters.java"


async def printed_by_kafka(
    written: Iterable[KeyValue], directory: Path, topic: str, *formatters: str
) -> list[str]:
    """Return the lines that these classes of Kafka print for the records. `directory`: for a temporary file."""
    file = directory / "records"
    with file.open("wb") as out:
        for record in written:
            for field in record:
                out.write(struct.pack(">i", -1 if field is None else len(field)) + (field or b""))
    return (await run_java(_PROGRAM, str(file), topic, *formatters)).splitlines()
