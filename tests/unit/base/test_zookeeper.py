"""The setting that chooses the ZooKeeper of a cluster."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.zookeeper import EMBEDDED, EXTERNAL, FORMS, MANAGED, parse_zookeeper, shown_kind


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("embedded", (EMBEDDED, "")),
        ("managed", (MANAGED, "")),
        ("h:2181", (EXTERNAL, "h:2181")),
        ("a:1,b:2,c:3/kafka", (EXTERNAL, "a:1,b:2,c:3/kafka")),
        ("[::1]:2181", (EXTERNAL, "[::1]:2181")),
    ],
)
def test_setting_chooses_a_server_of_the_cluster_or_an_address(
    value: str, parsed: tuple[str, str]
) -> None:
    assert parse_zookeeper(value) == parsed


@pytest.mark.parametrize(
    "value",
    [
        "",
        "embeded",
        "Managed",
        "external",
        "localhost",
        "h:port",
        "h:99999",
        "/kafka",
        2181,
    ],
)
def test_refused_setting_names_the_three_forms(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_zookeeper(value)
    assert str(caught.value).startswith("zookeeper.connect ")
    assert FORMS in str(caught.value)


def test_only_a_server_that_the_cluster_runs_is_called_not_replicated() -> None:
    texts = {kind: shown_kind(kind) for kind in (EMBEDDED, MANAGED, EXTERNAL)}
    assert [kind for kind, text in texts.items() if "not replicated" in text] == [EMBEDDED, MANAGED]
