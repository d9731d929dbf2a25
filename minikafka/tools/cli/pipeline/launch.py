"""The common part of all commands of `minikafka pipeline`: options, the start of Spark, and the output.

This module imports neither Spark nor `minikafka.spark.pipelines`: every `--help` loads it.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any, Final

import click

import minikafka.client as clients
import minikafka.spark.pipelines.session.context as contexts
import minikafka.spark.pipelines.session.metrics_page as pages
import minikafka.spark.pipelines.session.report as reports
import minikafka.spark.storage.locations as locations
import minikafka.tools.cli.pipeline.output as outputs
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.tools.cli.arguments.command_config import security_options
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    bootstrap_option,
    command_config_option,
    data_option,
    key_value_pairs,
    not_blank,
    time_limit,
    timeout_option,
)
from minikafka.tools.cli.execution.running import fail_unless, interrupt, run_with_client
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import require_topics

_MASTERS: Final = re.compile(r"local(\[.+\]|-cluster\[.+\])?|spark://\S+:\d+.*|yarn|k8s://.+")


def _master(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the URL of the Spark master; a click callback.

    Raises BadParameter for a malformed URL: Spark would print a stack trace of its Java process.
    """
    if not _MASTERS.fullmatch(value):
        known = "local, local[N], spark://HOST:PORT, yarn or k8s://..."
        raise click.BadParameter(f"{value!r} is not a Spark master: use {known}")
    return value


@dataclass(frozen=True)
class Launch:
    """The common options of a command. `run` runs a pipeline with these options."""

    bootstrap: str | None
    data: str | None
    master: str
    conf: Mapping[str, str]
    as_json: bool
    quiet: bool
    debug: bool

    def servers(self, given: str | None = None) -> str:
        """Return the bootstrap servers: `given` if set, else from `--bootstrap` or `--data`. Raises ClusterError."""
        return given or bootstrap_servers(self.bootstrap, self.data)

    def security(self) -> dict[str, str]:
        """Return the options of `--command-config` for Spark, to be called after `servers`. Raises ConfigError.

        Without the option, they are those of the profile, or of the administrator of a secure cluster in `--data`.
        """
        return security_options()

    def run(
        self,
        name: str,
        work: contexts.Work,
        *,
        brokers: Iterable[str] = (),
        topics: Iterable[tuple[str, Iterable[str]]] = (),
        check: Callable[[], object] | None = None,
    ) -> None:
        """Run a pipeline, print its summary, and end with exit code 1 unless the summary is `ok`.

        `brokers`: the bootstrap servers of each cluster that must answer before Spark starts. `topics`: pairs of such
        servers and the topics that must exist. Without these checks, a wrong address or name would be noticed only
        after half a minute or more, because Spark has to start, and its streams wait for brokers that restart. `check`:
        a further check before Spark starts.
        """
        for servers in dict.fromkeys(brokers):
            run_with_client(lambda client: client.describe_cluster(), servers)
        for servers, names in topics:
            run_with_client(partial(_require, names=list(names)), servers)
        if check is not None:
            check()

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, interrupt)
        settings = contexts.SparkSettings(self.master, self.conf, self.debug)
        try:
            shown = not (self.quiet or self.as_json)
            with (
                outputs.TerminalDisplay(shown=shown, as_json=self.as_json) as display,
                _metrics(name, report := reports.Report(display)),
            ):
                summary = contexts.execute(name, work, settings, report, limit_s=time_limit())
        except MinikafkaError as error:
            if self.debug and error.__cause__ is not None:
                text = "".join(traceback.format_exception(error.__cause__))
                echo(*text.split("\n"), err=True)
            raise
        show(summary.document(), lambda: outputs.print_summary(summary))
        fail_unless(summary.ok)


_METRICS: Final = f"{__name__}.metrics"
_ADDRESS: Final = re.compile(r"(?:(?P<host>[^:\s]+|\[[^]\s]+\]):)?(?P<port>[0-9]{1,5})")


def _remember_metrics(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found["port"]) > 65535:
        raise click.BadParameter(f"{value!r} must be PORT or HOST:PORT")
    host = (found["host"] or "127.0.0.1").strip("[]")
    context.meta[_METRICS] = host, int(found["port"])


def _metrics(name: str, report: reports.Report) -> AbstractContextManager[object]:
    """Return the page that `--metrics` asks for; nothing without the option."""
    context = click.get_current_context(silent=True)
    address = context.meta.get(_METRICS) if context else None
    if address is None:
        return nullcontext()
    report.is_scraped = True
    return pages.metrics_page(address, pages.metrics_of(name, report.counts))


metrics_option = click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    expose_value=False,
    callback=_remember_metrics,
    help="Serve the counts of the streams for Prometheus under /metrics while the command runs.",
)


async def _require(client: clients.Client, names: Sequence[str]) -> None:
    await require_topics(client.admin, names)


class InvalidInput(click.BadParameter):
    """A file or an option of a pipeline is wrong, as the text says. The command exits with code 2."""

    def format_message(self) -> str:
        """Return the text alone."""
        return self.message


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise each ConfigError of the `with` block as an InvalidInput: nothing was begun."""
    try:
        yield
    except ConfigError as error:
        raise InvalidInput(str(error)) from error


def launch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the options of all pipeline commands; pass the option values as `launch`.

    The command raises MinikafkaError if pyspark, pyarrow or numpy is not installed.
    """

    @bootstrap_option
    @command_config_option
    @data_option
    @click.option(
        "--master",
        metavar="URL",
        default="local[*]",
        show_default=True,
        callback=_master,
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn or k8s://....",
    )
    @click.option(
        "--set",
        "conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=key_value_pairs,
        help="A setting of Spark; may be repeated.",
    )
    @timeout_option
    @json_option
    @click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
    @click.option("--debug", is_flag=True, help="Show Spark's warnings and its complete errors.")
    @wraps(command)
    def with_launch(
        bootstrap: str | None,
        data: str | None,
        master: str,
        conf: dict[str, str],
        quiet: bool,
        debug: bool,
        **rest: Any,
    ) -> None:
        require_spark()
        launch = Launch(bootstrap, data, master, conf, wants_json(), quiet, debug)
        command(launch=launch, **rest)

    return with_launch


def require_spark() -> None:
    """Raise MinikafkaError if pyspark, pyarrow or numpy is not installed."""
    if missing := [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]:
        text = f"pipelines need {', '.join(missing)}: pip install 'minikafka[spark]'"
        raise MinikafkaError(text)


continuous_option = click.option(
    "--available-now/--continuous",
    "available_now",
    default=True,
    show_default=True,
    help="End after the records that exist at the start, or run until Ctrl-C.",
)
skip_lost_option = click.option(
    "--skip-lost",
    is_flag=True,
    help="Skip records that were deleted before they were read, instead of failing.",
)
checkpoint_option = click.option(
    "--checkpoint",
    metavar="DIR",
    required=True,
    callback=not_blank,
    help="Directory with the progress; the next run continues from there.",
)


_DURATION: Final = re.compile(r"([0-9]{1,6})\s*([a-z]+)")
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3_600),
    **dict.fromkeys(("d", "day"), 86_400),
}


def seconds(what: str, text: str) -> int:
    """Return the seconds in a duration such as `5m`. Raises `ConfigError` for an invalid or zero duration.

    `what`: the name of the duration in the error message.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found and _UNITS.get(found[2].removesuffix("s") or "s")
    if not found or not unit or not int(found[1]):
        raise ConfigError(f"{what} must be a duration such as 30s, 5m, 1h or 1d, not {text!r}")
    return int(found[1]) * unit


class _Directory(click.Path):
    """A path that click checks, unless it is a URI."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if locations.is_uri(str(value)) else super().convert(value, param, ctx)


OUTPUT: Final = _Directory(file_okay=False)
INPUT: Final = _Directory(exists=True, file_okay=False)
storage_option = click.option(
    "--storage",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_value_pairs,
    help="With a URI: an option of its store, such as region=eu-central-1; may be repeated.",
)
plot_option = click.option(
    "--plot",
    metavar="FILE",
    callback=not_blank,
    help="Draw the result: a picture (.png), or a page that needs no network (.html).",
)


def lake_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with `--table` and `--catalog`."""
    for option in reversed(_OF_TABLES):
        command = option(command)
    return command


_OF_TABLES = (
    click.option(
        "--table",
        metavar="NAMESPACE.NAME",
        callback=not_blank,
        help="Name of an Iceberg table in its catalog (default: minikafka.records).",
    ),
    click.option(
        "--catalog",
        multiple=True,
        metavar="KEY=VALUE",
        callback=key_value_pairs,
        help="A property of the Iceberg catalog, such as uri=http://HOST:8181; may be repeated. "
        "Default: a SQLite file in the directory of the table.",
    ),
)
