"""The lines that `up` and `restart` print about settings that differ."""

from __future__ import annotations

from minikafka.broker.rpc.messages import SettingChange
from minikafka.tools.cli.processes.differences import Differences

NOW = SettingChange("log.retention.ms", None, "5", "now")
LATER = SettingChange("num.partitions", "3", "6", "restart")
HIDDEN = SettingChange("min.insync.replicas", "1", "2", "overridden")


def test_command_up_lists_changed_keys_and_the_brokers_that_need_a_restart() -> None:
    found = Differences.of({2: [NOW, LATER], 1: [NOW, HIDDEN], 3: OSError("silent")})
    assert found.lines("my data") == [
        "log.retention.ms = 5 (was not set) on brokers 1, 2: in effect now",
        "min.insync.replicas = 2, set to 1 at run time, on broker 1: no effect while `configs set` overrides it",
        "num.partitions = 6 (was 3) on broker 2: takes effect at the next start",
        "broker 3 was not compared with the configuration: silent",
        "to restart them: minikafka restart 2 --rolling --data 'my data'",
    ]
    assert found.as_json()[0] == {
        "name": "log.retention.ms",
        "old": None,
        "new": "5",
        "effect": "now",
        "brokers": [1, 2],
    }
    assert Differences.of({1: [], 2: []}).lines(None) == []
