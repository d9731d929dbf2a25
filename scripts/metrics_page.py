"""The text of docs/metrics.md, the page about metrics, dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.metrics import Metric, prometheus_name
from minikafka.simulation import MemoryCluster, run_seeded
from minikafka.tools.cli.generate.dashboards import DASHBOARDS
from minikafka.tools.cli.generate.rules import ALERTS, RECORDS

OF_MINIKAFKA = frozenset(
    {
        "Available",
        "CertificateExpiryMs",
        "ClockOffsetMs",
        "DeletedBytesPerSec",
        "DeletedSegmentsPerSec",
        "FalseSuspicionsPerSec",
        "LimitedConnections",
        "MaxClockOffsetMs",
        "OpeningPartitionCount",
        "RefusedConnections",
        "ReplacedConnections",
        "SuspicionsPerSec",
        "WaitingProduces",
    }
)
"""The names of beans that Kafka does not have."""
PAGE = """\
# Metrics

{generated}
`GET /metrics` on the control listener of each broker shows its metrics in the text format of Prometheus, if
`minikafka.metrics.enable` is true ([with security](security.md#metrics)). `minikafka generate prometheus-targets`
prints where they are, and `LocalCluster.metrics_urls` has their URLs. [Architecture](architecture.md#metrics) says how
they are computed.

```console
$ minikafka generate prometheus-targets -o targets.json
$ minikafka generate prometheus-rules -o rules.yml
$ promtool check rules rules.yml
$ minikafka generate grafana --all dashboards
```

## Dashboards

`minikafka generate grafana NAME` prints one as JSON: import it in Grafana, and choose the data source. `--all DIR`
writes all of them, for Grafana's provisioning. A cluster without a controller has no values for the dashboard
`controller`. `scripts/check-dashboards` compares them with the types of Grafana's schema (@grafana/schema 13.2.3). They
were not shown by a running Grafana.

{dashboards}

## Alerts

`minikafka generate prometheus-rules` prints them for `rule_files` of Prometheus. Those with the names of Strimzi's
examples mean the same. Sums are by `job`, so give each cluster a job of its own.

{alerts}

The file also has these rates and sums, which are computed in advance: {records}.

## Names

The names are those that Prometheus' JMX exporter gives Kafka's beans by its usual rules, so dashboards that others have
made for Kafka find them. Counters of topics have a value for each topic, and one for all, without the label `topic`.
Each bean of the first table was found in a running broker of Apache Kafka 3.9.1 with ZooKeeper, if only as an attribute
of a bean without a name; `byte-rate` of replication was found in its sources.

{kafka}

Only minikafka has these; `kafka_consumergroup_lag` has the name and the labels of kafka_exporter:

{own}
"""


def metrics_page(generated: str) -> str:
    """Return the text of the page. `generated`: the comment that says so."""
    found = sorted(run_seeded(0, _registered()), key=lambda one: one.name)
    own = [one for one in found if _is_own(one)]
    return PAGE.format(
        generated=generated,
        dashboards=_table(("name", "panels"), _dashboards()),
        alerts=_table(
            ("alert", "severity", "condition"),
            [
                (
                    f"`{one.name}`",
                    one.severity,
                    f"`{one.query}` for {one.lasts}".replace("|", "\\|"),
                )
                for one in ALERTS
            ],
        ),
        records=", ".join(f"`{one.name}`" for one in RECORDS),
        kafka=_table(("metric", "bean", "meaning"), map(_row, (o for o in found if o not in own))),
        own=_table(("metric", "bean", "meaning"), map(_row, own)),
    )


async def _registered() -> list[Metric]:
    """Return the metrics of a broker."""
    async with MemoryCluster(1) as cluster:
        [broker] = cluster.brokers.values()
        return list(broker.metrics.all())


def _is_own(metric: Metric) -> bool:
    name = metric.name.rpartition("name=")[2]
    return name in OF_MINIKAFKA or ":" not in metric.name


def _dashboards() -> list[tuple[str, str]]:
    return [
        (f"`{name}`", ", ".join(panel.title for panel in dashboard.panels))
        for name, dashboard in DASHBOARDS.items()
    ]


def _row(metric: Metric) -> tuple[str, str, str]:
    bean = f"`{metric.name}`" if ":" in metric.name else ""
    return f"`{prometheus_name(metric.name, metric.kind)}`", bean, metric.help


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
