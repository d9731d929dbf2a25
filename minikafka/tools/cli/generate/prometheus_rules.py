"""`generate prometheus-rules`: rules of Prometheus in YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from minikafka.tools.cli.generate.output import output_option, write
from minikafka.tools.cli.generate.rules import ALERTS, RECORDS


@click.command("prometheus-rules")
@output_option
def prometheus_rules(output: str | None) -> None:
    """Print rules of Prometheus: alerts with the names that Strimzi's users know, and rates of topics and requests.

    Name the file in rule_files of prometheus.yml. Give each cluster a job of its own: sums are by job.
    """
    write(text(), output)


def text() -> str:
    """Return the file of rules."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Made by `minikafka generate prometheus-rules`. Check it: promtool check rules FILE"
    yield "groups:"
    yield "  - name: minikafka-rates"
    yield "    rules:"
    for record in RECORDS:
        yield f"      - record: {record.name}"
        yield f"        expr: {_quoted(record.query)}"
    yield "  - name: minikafka-alerts"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {_quoted(alert.query)}"
        yield f"        for: {alert.lasts}"
        yield f"        labels: {{severity: {alert.severity}}}"
        yield f"        annotations: {{summary: {_quoted(alert.text)}}}"


def _quoted(text: str) -> str:
    """Return a string in quotes: those of JSON are also YAML's."""
    return json.dumps(text)
