"""A cluster file sets the keys of all brokers and of single brokers, or is refused with a reason."""

from __future__ import annotations

import pytest

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError


def test_cluster_file_sets_keys_of_all_brokers_and_of_one():
    config = ClusterConfig.parse(
        """
        [cluster]
        brokers = 5
        port = 0
        data = "elsewhere"
        [zookeeper]
        connect = "h:2181/x"
        [broker]
        min.insync.replicas = 2
        [broker.2]
        broker.rack = "b"
        min.insync.replicas = 1
        """
    )

    assert (config.brokers, config.port, config.data, config.zookeeper) == (
        5,
        0,
        "elsewhere",
        "h:2181/x",
    )
    assert config.keys_of(1) == {"min.insync.replicas": 2}
    assert config.keys_of(2) == {"min.insync.replicas": 1, "broker.rack": "b"}


def test_cluster_file_accepts_a_broker_key_that_ends_in_the_name_of_another_key():
    config = ClusterConfig.parse("[broker]\nadvertised.listeners = 'PLAINTEXT://here:1'")

    assert config.keys_of(1) == {"advertised.listeners": "PLAINTEXT://here:1"}


def test_empty_cluster_file_means_three_brokers_and_no_choice_of_zookeeper():
    assert ClusterConfig.parse("") == ClusterConfig(listeners={})
    assert ClusterConfig().zookeeper is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[clusters]", "did you mean cluster"),
        ("[cluster]\nbroker = 3", r"did you mean cluster\.brokers"),
        ("[cluster]\nbrokers = 0", "1 to 1000"),
        ("[cluster]\nport = 70000", "0 to 65535"),
        ("[broker]\nlog.segment.bytez = 1", r"did you mean log\.segment\.bytes"),
        ("[broker]\nlog.dirs = 'x'", "set by the cluster"),
        ("[broker.1]\nbroker.id = 4", "set by the cluster"),
        ("[broker.1]\nnum.partitions = 0", "at least 1"),
        ("[zookeeper]\nport = 1", r"did you mean zookeeper\.connect"),
        ("cluster = 3", "must be a table"),
        ("[[cluster]]", "must be a table"),
        ("[broker]\n1 = 2", "must be a table"),
        ("[broker]\nnum.partitions = 3\n'num.partitions' = 4", r"^num\.partitions is given twice"),
        ("[broker.2]\n'num.partitions' = 3\nnum.partitions = 4", r"^num\.partitions is given twice"),
        ("[cluster]\nbrokers = 3.0", r"cluster\.brokers must be a whole number, got 3\.0"),
        ("[listeners]\nPLAINTEXT = 1", r"^listeners\.PLAINTEXT cannot be set: .* is cluster\.port"),
        ("[listeners]\ncontroller = 1", r"the port of CONTROLLER is cluster\.metrics\.port"),
        ("[listeners]\nSSL = 65536", r"^listeners\.SSL must be from 0 to 65535"),
        ("[listeners]\nSSL = 'x'", r"^listeners\.SSL must be a whole number"),
        ("[listeners]\nSSL = 1\nssl = 2", r"^listeners\.ssl is given twice"),
        ("[listeners]\n'a.b' = 1", r"^listeners\.a\.b is not the name of a listener"),
        ("listeners = 9192", "listeners must be a table"),
        ("[xyzzy]\nfoo = 1", "known keys are cluster, listeners, zookeeper, broker"),
        ("[broker]\nxyzzy.foo = 1", r"^unknown key xyzzy\.foo; docs/configuration\.md"),
        ("[broker.x]\nbroker.rack = 'b'", r"^\[broker\.x\] names no broker: .* \[broker\.1\]"),
        ("[broker.x]", r"^\[broker\.x\] names no broker"),
        ("[broker.0]\nbroker.rack = 'b'", r"^\[broker\.0\] names no broker"),
        ("[broker.01]\nbroker.rack = 'b'", r"^\[broker\.01\] names no broker"),
        ("[broker.99999]\nbroker.rack = 'b'", r"^\[broker\.99999\] names no broker"),
    ],
)  # fmt: skip
def test_invalid_cluster_file_is_refused_with_a_reason(text, reason):
    with pytest.raises(ConfigError, match=reason):
        ClusterConfig.parse(text)
