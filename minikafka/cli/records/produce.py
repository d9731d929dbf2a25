"""`produce`: send lines, JSON or files as records, in order. Exit code 1 if a record was not acknowledged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, Literal

import click

from minikafka.base.errors import MinikafkaError
from minikafka.cli.arguments import completion
from minikafka.cli.arguments.find_cluster import bootstrap_servers
from minikafka.cli.arguments.options import bootstrap_option, data_option, timeout_option
from minikafka.cli.execution.running import run_with_client
from minikafka.cli.records.record_format import unescape
from minikafka.cli.records.record_input import Header, Shape, check_files, file_items, line_items
from minikafka.cli.records.sending import Sending, input_size
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.result import as_line
from minikafka.cli.terminal.topic_errors import explain_topic_errors

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "0": 0, "1": 1}

_EPILOG = r"""
A record with a key goes to the partition of its key, the same as with Kafka's clients. Records without
a key are spread: 16 KiB of them go to one partition, the next 16 KiB to the next one, and so on, from a
random one; input that is typed line by line goes to another partition with each line.

A line of --json is an object with any of "key", "value", "headers", "partition" and "timestamp" (Unix ms,
also below 0; default: now), as `minikafka consume --json` prints it. Keys and values are strings or null;
"key_base64" and "value_base64" hold other bytes. Headers are objects: [{"key": "h", "value": "v"}].
"""


def _parse_headers(
    context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[Header, ...]:
    headers = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", context, option)
        try:
            name.encode()
        except UnicodeEncodeError:
            problem = f"the name of a header must be UTF-8, got {name!r}"
            raise click.BadParameter(problem, context, option) from None
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


@click.command(epilog=_EPILOG)
@click.argument(
    "words", nargs=-1, metavar="TOPIC [FILE]...", shell_complete=completion.topic_then_files
)
@click.option(
    "-t",
    "--topic",
    "named",
    metavar="TOPIC",
    help="Same as TOPIC.",
    shell_complete=completion.topics,
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Partition of all records that name none (default: see below).",
)
@click.option("-l", "--lines", is_flag=True, help="Send each line of the FILEs as a record.")
@click.option(
    "-K",
    "--key-delimiter",
    metavar="DELIM",
    help=r"Split each line into key and value at DELIM; \t is a tab. A line without DELIM has no key.",
)
@click.option("--json", "as_json", is_flag=True, help="Read each line as a JSON object; see below.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_parse_headers,
    metavar="KEY=VALUE",
    help="Add a header to every record; may be repeated.",
)
@click.option("-Z", "--tombstone", is_flag=True, help="Send empty values as null (tombstones).")
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Wait for every in-sync replica (all or -1), for the leader (1), or not at all (0).",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@click.option(
    "--summary",
    type=click.Choice(["text", "json", "none"]),
    help="At the end, print the number of records, bytes and seconds: as a line on standard error (the default with "
    "-l and with FILEs), as a JSON object on standard output, or not at all.",
)
@bootstrap_option
@data_option
@timeout_option
def produce(
    words: tuple[str, ...],
    named: str | None,
    partition: int | None,
    lines: bool,
    key_delimiter: str | None,
    as_json: bool,
    headers: tuple[Header, ...],
    tombstone: bool,
    acks: str,
    compression: str,
    summary: str | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Send each line of standard input to TOPIC as a record, and wait until all are acknowledged.

    With FILEs, send each whole file as one record; with -l or --json, each line of a file is one record. A terminal
    then shows a progress bar.
    """
    if named is None and not words:
        raise click.UsageError("name a topic, as TOPIC or as -t TOPIC")
    topic, files = (words[0], words[1:]) if named is None else (named, words)
    is_whole = bool(files) and not (lines or as_json)
    delimiter = _delimiter(key_delimiter, splits_lines=not (as_json or is_whole))
    shape = Shape(delimiter, headers, tombstone, partition)
    if not files and sys.stdin is None:
        raise MinikafkaError(f"standard input is closed: minikafka produce {topic} < FILE")
    check_files(files)
    parse = shape.of_json if as_json else shape.of_line

    source = file_items(files, shape) if is_whole else line_items(files, parse, skip_blank=as_json)
    is_bulk = lines or bool(files)
    is_typed = not files and sys.stdin.isatty()
    sending = Sending(
        topic,
        source,
        ACKS[acks],
        CODECS[compression],
        shows_bar=is_bulk and not is_typed,
        total=input_size(files),
    )
    with explain_topic_errors(topic):
        sent = run_with_client(sending.run, bootstrap_servers(bootstrap, data))
    summary = summary or ("text" if is_bulk else "none")
    if summary == "json":
        echo(as_line(sent.as_json()))
    elif summary == "text":
        echo(sent.text(), err=True)


def _delimiter(given: str | None, *, splits_lines: bool) -> bytes | None:
    """Return the value of `-K` without escapes, None if it is not given. Raises UsageError."""
    if given is None:
        return None
    if not given:
        raise click.UsageError("-K must not be empty")
    if not splits_lines:
        raise click.UsageError("-K splits lines: it cannot be combined with --json or whole files")
    return unescape(given)
