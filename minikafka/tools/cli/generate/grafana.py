"""`generate grafana`: a dashboard as the JSON model that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.generate.dashboards import DASHBOARDS, Dashboard, Panel
from minikafka.tools.cli.generate.output import output_option, write

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA: Final = 39
"""The version of the JSON model: that of Grafana 10 and 11. Newer releases convert it."""
_WIDTH: Final = 24
"""The columns of a dashboard."""
_NUMBER: Final = (4, 4)
_GRAPH: Final = (12, 8)
"""Width and height of a panel."""


@click.command()
@click.argument("dashboard", type=click.Choice(list(DASHBOARDS)), default="cluster", required=False)
@click.option(
    "--all",
    "directory",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write all dashboards to DIR, one file each, for Grafana's provisioning.",
)
@output_option
def grafana(dashboard: str, directory: str | None, output: str | None) -> None:
    """Print a dashboard of Grafana, which reads the brokers' metrics from Prometheus.

    Import the file in Grafana, and choose the data source at the top of the dashboard. See `generate
    prometheus-targets` for the targets of Prometheus.
    """
    if directory is None:
        write(text_of(dashboard), output)
        return
    if output is not None:
        raise click.UsageError("--all and --output name two places: give one of them")
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MinikafkaError(f"{directory} cannot be made: {error.strerror}") from None
    for name in DASHBOARDS:
        write(text_of(name), str(Path(directory, f"minikafka-{name}.json")))


def text_of(name: str) -> str:
    """Return the JSON of a dashboard."""
    return json.dumps(_model(name, DASHBOARDS[name]), indent=2) + "\n"


def _model(name: str, dashboard: Dashboard) -> dict[str, Any]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    variables = [_variable(*one) for one in dashboard.variables.items()]
    return {
        "uid": f"minikafka-{name}",
        "title": dashboard.title,
        "tags": ["minikafka", "kafka"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [source, *variables]},
        "annotations": {"list": []},
        "panels": list(_panels(dashboard)),
    }


def _variable(name: str, values: tuple[str, str]) -> dict[str, Any]:
    metric, label = values
    query = f"label_values({metric}, {label})"
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield the panels from left to right; a panel that does not fit into its row begins the next one."""
    x = y = row = 0
    for number, panel in enumerate(dashboard.panels, 1):
        width, height = _NUMBER if panel.is_number else _GRAPH
        if x + width > _WIDTH or (row and height != row):
            x, y = 0, y + row
        row = height
        yield _panel(number, panel, {"x": x, "y": y, "w": width, "h": height})
        x += width


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    kind = "stat" if panel.is_number else "timeseries"
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}}
    if panel.is_number:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    return {
        "id": number,
        "type": kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend or panel.title,
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
