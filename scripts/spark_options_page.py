"""The page spark-options.md, which write_docs.py writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.spark import security_options
from minikafka.spark.security_options import default_of
from minikafka.spark.sink import options as sink_options
from minikafka.spark.source import options as source_options

Table = Callable[[Iterable[str], Iterable[Iterable[str]]], str]

SPARK_OPTIONS = """\
# Options of the Spark data source

{generated}
The options of reads and writes with `format("minikafka")` ([Spark](spark.md)), and of sources and sinks of
[pipelines](pipelines.md).

## Reads

{reads}

## Writes

{writes}

## Encryption and login

Reads and writes have these options, and all other keys of `--command-config` with the prefix `kafka.`
([how they work](spark.md#encryption-and-login)).

{security}

## Options of Spark's own connector

What a program for `format("kafka")` may set, and what `format("minikafka")` does with it: *yes* (the option has its
effect), *no effect* (one warning says what happens instead), or *refused* (an error says what to do).

{connector}

These settings of a Spark session are read by the connector only:

{settings}
"""


def page(generated: str, table: Table) -> str:
    """Return the text of the page. `generated`: the line that says who writes it. `table` makes a table of Markdown."""
    tables = [
        table(
            ("option", "default", "meaning"),
            [
                (f"`{name}`", f"`{default}`" if default else "", options.MEANINGS[name])
                for name, default in options.DEFAULTS.items()
            ],
        )
        for options in (source_options, sink_options)
    ]
    security = [
        (f"`{name}`", f"`{default}`" if (default := default_of(name)) else "", meaning)
        for name, meaning in security_options.MEANINGS.items()
    ]
    connector, settings = _connector_options(table)
    return SPARK_OPTIONS.format(
        generated=generated,
        reads=tables[0],
        writes=tables[1],
        security=table(("option", "default", "meaning"), security),
        connector=connector,
        settings=settings,
    )


def _connector_options(table: Table) -> tuple[str, str]:
    """Return the tables of the options of Spark's own Kafka connector, and of its settings of a session."""
    from support.spark import connector_options as known

    rows = [(f"`{name}`", known.of_reads(name), known.of_writes(name)) for name in known.names()]
    settings = [(f"`{name}`", text) for name, text in known.SPARK.items()]
    return table(("option", "read", "write"), rows), table(("setting", "here"), settings)
