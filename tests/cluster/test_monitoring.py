"""The series of dashboards and alerts exist in what real brokers serve, with the labels that queries use."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterator

import pytest
from support.clusters.running_cluster import create_topic

from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.tools.cli.generate.dashboards import DASHBOARDS
from minikafka.tools.cli.generate.rules import ALERTS, RECORDS
from minikafka.tools.cluster import LocalCluster

SAMPLE = re.compile(r"([a-z_:]+)(?:\{(.*)\})? \S+")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
SELECTOR = re.compile(r"\b((?:kafka|process)_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)(=~|!=|=)"([^"]*)"')
BY = re.compile(r"\bby \(([a-z_, ]+)\)")
OF_PROMETHEUS = {"job", "instance"}


async def served(cluster: LocalCluster) -> dict[str, list[dict[str, str]]]:
    """Return the labels of every series of all brokers, by name."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for url in cluster.metrics_urls.values():
        page = await asyncio.to_thread(lambda url=url: urllib.request.urlopen(url).read().decode())
        for line in page.splitlines():
            if (match := SAMPLE.fullmatch(line)) and not line.startswith("#"):
                found[match[1]].append(dict(LABEL.findall(match[2] or "")))
    return found


def queries() -> Iterator[str]:
    for dashboard in DASHBOARDS.values():
        for panel in dashboard.panels:
            yield from (query for query, _ in panel.queries)
        for metric, label in dashboard.variables.values():
            yield f"count by ({label}) ({metric})"
    yield from (rule.query for rule in (*ALERTS, *RECORDS))


def selects(matchers: str, labels: dict[str, str]) -> bool:
    """True if a series with these labels is selected. A variable of a dashboard selects every value."""
    for name, operator, value in MATCHER.findall(matchers):
        have = labels.get(name, "")
        wanted = value.replace("$topic", ".+").replace("$group", ".+")
        is_equal = re.fullmatch(wanted, have) is not None if operator == "=~" else have == wanted
        if is_equal == (operator == "!="):
            return False
    return True


@pytest.mark.usefixtures("with_controller")
async def test_every_series_of_dashboards_and_rules_is_served_with_its_labels(cluster):
    await create_topic(cluster, "monitored", 1)
    async with Client(cluster.bootstrap) as client:
        await client.produce("monitored", [Record(value=b"x")] * 2)
        await client.groups.alter_offsets("monitored", {TopicPartition("monitored", 0): 1})
    found = await served(cluster)
    missing = []
    for query in queries():
        grouped = {word.strip() for words in BY.findall(query) for word in words.split(",")}
        chosen = [
            labels
            for name, matchers in SELECTOR.findall(query)
            for labels in found.get(name, [])
            if selects(matchers, labels)
        ]
        named = {name for name, _ in SELECTOR.findall(query)}
        missing += [f"{name} in {query}" for name in named if name not in found]
        if not chosen:
            missing.append(query)
        elif lacking := grouped - OF_PROMETHEUS - set().union(*chosen):
            missing.append(f"{lacking} in {query}")
    assert missing == []
    assert len(list(queries())) > 60
