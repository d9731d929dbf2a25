"""Searches what Spark shows and keeps for the secrets of connections.

    spark-secrets

Three queries write, read and stream over TLS: with a private key in PEM format, with a password, and with a token. The
session has the web UI and an uncompressed event log. The exit code is 0 only if no secret is in a plan, an error, the
progress of a stream, a page of the web UI or of its REST API, the event log or a checkpoint.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
import traceback
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pyspark.sql import SparkSession
from support.security.client_cells import Place

from minikafka.spark.session import session

MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PAGES: Final = "SQL", "StreamingQuery", "environment", "jobs", "stages", "executors"
LISTS: Final = "sql?details=true&planDescription=true&length=1000", "jobs", "stages", "environment"
LENGTH: Final = 40
"""Characters of a secret that are searched."""


def connections(place: Place, directory: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Return the options of each connection, and its secret."""
    own, trusted = place.brokers.authority.client("alice"), str(place.brokers.authority.pem)
    login, bearer = place.sasl("SCRAM-SHA-512"), place.sasl("OAUTHBEARER").bearer
    given = login._properties(login.write(directory, "login"))
    password = {f"kafka.{name}": value for name, value in given.items()}
    sasl = {"kafka.bootstrap.servers": place.brokers.bootstrap("SASL_SSL")}
    key = {
        "kafka.bootstrap.servers": place.brokers.bootstrap("SSL"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": trusted,
        "kafka.ssl.keystore.key": own.key_file.read_text(),
        "kafka.ssl.keystore.certificate.chain": own.chain_file.read_text(),
    }
    token = sasl | {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": trusted,
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'{MODULE} required token="{bearer}";',
    }
    return {
        "key": (key, own.key_file.read_text().splitlines()[1]),
        "password": (password | sasl, login.password),
        "token": (token, bearer),
    }


def of_queries(
    spark: SparkSession, given: Mapping[str, str], topics: tuple[str, str], checkpoint: Path
) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each text about queries with these options."""
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("minikafka").mode("append").options(**given, topic=topics[0]).save()
    frame = spark.read.format("minikafka").options(**given, subscribe=topics[0]).load()
    assert frame.count() >= 50
    source = spark.readStream.format("minikafka").options(**given, subscribe=topics[0])
    stream = source.option("startingOffsets", "earliest").load().writeStream.format("minikafka")
    stream = stream.options(**given, topic=topics[1], checkpointLocation=str(checkpoint))
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    printed = io.StringIO()
    with redirect_stdout(printed):
        for mode in ("extended", "cost", "formatted"):
            frame.explain(mode=mode)
        query.explain(True)
    yield "plans", printed.getvalue()
    yield "progress", str(query.lastProgress)
    try:
        away = {"kafka.bootstrap.servers": "localhost:1", "kafka.default.api.timeout.ms": "300"}
        wrong: Any = {**given, **away, "subscribe": topics[0]}
        spark.read.format("minikafka").options(**wrong).load().count()
    except Exception as error:  # noqa: BLE001 - what it says is searched
        yield "error", "".join(traceback.format_exception(error))


def of_web_ui(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each page of the web UI."""
    url, application = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    api = f"api/v1/applications/{application}"
    executions = json.loads(get(f"{url}/{api}/sql?details=false&length=1000"))
    pages = [*(f"{page}/" for page in PAGES), *(f"{api}/{name}" for name in LISTS)]
    pages += [f"SQL/execution/?id={one['id']}" for one in executions]
    for page in pages:
        yield page, get(f"{url}/{page}")


def get(url: str) -> str:
    """Return the text at an address."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def of_files(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file below a directory."""
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            yield file.name, file.read_text("latin-1")


def main() -> int:
    """Run the queries, search, and print each text that has a secret."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "events").mkdir()
        with Place(directory, 1) as place:
            texts, secrets = collected(place, directory)
    found = [(where, what) for where, text in texts for what in secrets if secrets[what] in text]
    for where, what in found:
        print(f"{where}: the {what} is shown")
    size = sum(len(text) for _, text in texts)
    print(f"{len(texts)} texts of {size:,} characters: {len(found)} with a secret")
    return 1 if found or len(texts) < len(PAGES) else 0


def collected(place: Place, directory: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return all texts, and the secrets by name."""
    made = connections(place, directory)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.eventLog.compress": "false",
    }
    spark = session("secrets", "local[2]", **settings)
    topics = asyncio.run(place.topic()), asyncio.run(place.topic())
    texts: list[tuple[str, str]] = []
    for name, (given, _) in made.items():
        texts += of_queries(spark, given, topics, directory / "checkpoints" / name)
    texts += of_web_ui(spark)
    spark.stop()
    texts += [*of_files(directory / "events"), *of_files(directory / "checkpoints")]
    return texts, {name: secret[:LENGTH] for name, (_, secret) in made.items()}


if __name__ == "__main__":
    raise SystemExit(main())
