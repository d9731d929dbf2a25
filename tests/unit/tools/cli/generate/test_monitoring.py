"""`generate grafana` and `generate prometheus-rules`: files that Grafana and Prometheus can read."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess

import pytest
import yaml
from click.testing import CliRunner

from minikafka.tools.cli.generate.dashboards import DASHBOARDS
from minikafka.tools.cli.generate.grafana import text_of
from minikafka.tools.cli.generate.prometheus_rules import text
from minikafka.tools.cli.generate.rules import ALERTS, RECORDS
from minikafka.tools.cli.main import commands

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool, a part of Prometheus, is not installed"
)
FIRING = """
rule_files: [rules.yml]
evaluation_interval: 10s
tests:
  - interval: 10s
    input_series:
      - {series: 'kafka_server_replicamanager_underreplicatedpartitions{job="k", instance="a"}', values: '0x5 2x10'}
      - {series: 'kafka_controller_kafkacontroller_activecontrollercount{job="k", instance="a"}', values: '1x15'}
      - {series: 'kafka_controller_kafkacontroller_activecontrollercount{job="k", instance="b"}', values: '0x5 1x10'}
    alert_rule_test:
      - {alertname: UnderReplicatedPartitions, eval_time: 50s, exp_alerts: []}
      - alertname: UnderReplicatedPartitions
        eval_time: 100s
        exp_alerts:
          - exp_labels: {severity: warning, job: k, instance: a}
            exp_annotations: {summary: 2 partitions that a leads lack a replica in their ISR}
      - {alertname: AbnormalControllerState, eval_time: 50s, exp_alerts: []}
      - alertname: AbnormalControllerState
        eval_time: 100s
        exp_alerts:
          - exp_labels: {severity: warning, job: k}
            exp_annotations: {summary: 2 brokers are the active controller; it must be one}
"""


def promtool(directory, *words):
    command = ["promtool", *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", list(DASHBOARDS))
def test_dashboard_has_panels_with_queries_that_do_not_overlap(name):
    model = json.loads(text_of(name))
    assert model["uid"] == f"minikafka-{name}"
    cells = set()
    for panel in model["panels"]:
        x, y, width, height = (panel["gridPos"][key] for key in "xywh")
        covered = set(itertools.product(range(x, x + width), range(y, y + height)))
        assert not covered & cells, panel["title"]
        assert x + width <= 24
        cells |= covered
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
    assert len({panel["id"] for panel in model["panels"]}) == len(model["panels"])
    names = {variable["name"] for variable in model["templating"]["list"]}
    assert names == {"datasource", *DASHBOARDS[name].variables}


def test_grafana_prints_one_dashboard_and_writes_all_to_a_directory(tmp_path):
    printed = CliRunner().invoke(commands, ["generate", "grafana", "groups"])
    assert json.loads(printed.stdout)["title"] == "Kafka: consumer groups"
    written = CliRunner().invoke(commands, ["generate", "grafana", "--all", str(tmp_path / "d")])
    assert written.exit_code == 0
    assert {path.name for path in (tmp_path / "d").iterdir()} == {
        f"minikafka-{name}.json" for name in DASHBOARDS
    }
    refused = CliRunner().invoke(commands, ["generate", "grafana", "frob"])
    assert refused.exit_code == 1 or refused.exception is not None


def test_rules_are_yaml_with_an_entry_for_each_row():
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(text())["groups"]}
    assert [rule["record"] for rule in groups["minikafka-rates"]] == [one.name for one in RECORDS]
    alerts = groups["minikafka-alerts"]
    assert [(rule["alert"], rule["expr"]) for rule in alerts] == [(a.name, a.query) for a in ALERTS]
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in alerts)


@needs_promtool
def test_promtool_accepts_rules_and_queries_and_sees_the_alerts_fire(tmp_path):
    (tmp_path / "rules.yml").write_text(text())
    queries = [
        query.replace("$__rate_interval", "5m")
        for dashboard in DASHBOARDS.values()
        for panel in dashboard.panels
        for query, _ in panel.queries
    ]
    rules = [{"record": f"q{at}", "expr": query} for at, query in enumerate(queries)]
    shown = {"groups": [{"name": "dashboards", "rules": rules}]}
    (tmp_path / "queries.yml").write_text(yaml.safe_dump(shown))
    (tmp_path / "firing.yml").write_text(FIRING)
    checked = promtool(tmp_path, "check", "rules", "rules.yml", "queries.yml")
    assert checked.returncode == 0, checked.stderr
    fired = promtool(tmp_path, "test", "rules", "firing.yml")
    assert fired.returncode == 0, fired.stdout + fired.stderr
