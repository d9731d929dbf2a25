"""The broken links of the network in the brokers' reports, and the sentences about them."""

from __future__ import annotations

from typing import Any

from minikafka.tools.cluster.observation.links import (
    FRESH_MS,
    SETTLED_MS,
    broken_links,
    latest_reports,
    link_sentences,
)

NOON = 43_200_000


def link(to: int | None, port: int = 9092, for_ms: int = SETTLED_MS, **more: Any) -> dict[str, Any]:
    host = "zk" if to is None else f"10.0.0.{to}"
    base = {"to": to, "use": "calls", "address": f"{host}:{port}", "since": NOON}
    return {**base, "for_ms": for_ms, "error": "no response", **more}


def answer(**reports: Any) -> dict[str, Any]:
    """Return a broker's answer: for each `bN` the links of broker N, (age, links), or (age, links, reached)."""
    names = ("age_ms", "links", "reached_ms")
    rows = {name[1:]: row if isinstance(row, tuple) else (0, row) for name, row in reports.items()}
    return {"links": {id_: dict(zip(names, row, strict=False)) for id_, row in rows.items()}}


def sentences(*answers: dict[str, Any], away: set[int] | None = None) -> list[str]:
    reports = latest_reports(answers)
    return [text for _, text in link_sentences(broken_links(reports, away or set()), reports)]


def test_link_is_named_with_both_brokers_address_time_and_the_way_back() -> None:
    reached = (0, [], {"1": SETTLED_MS - 1})
    assert sentences(answer(b1=[link(2)], b2=reached)) == [
        "broker 1 cannot reach broker 2 at 10.0.0.2:9092 since 12:00:00 (no response); "
        "the way back, from broker 2 to broker 1, works"
    ]


def test_call_from_before_the_failure_does_not_show_that_the_way_back_works() -> None:
    for reached in ({"1": SETTLED_MS}, {}):
        [text] = sentences(answer(b1=[link(2)], b2=(0, [], reached)))
        assert text.endswith("; it is not known yet whether the way back works")


def test_pair_without_a_way_back_is_named_once() -> None:
    assert sentences(answer(b1=[link(2), link(2, 9093, use="fetch")], b2=[link(1)], b3=[])) == [
        "brokers 1 and 2 cannot reach each other: broker 1 tries at 10.0.0.2:9092 and 10.0.0.2:9093 since 12:00:00 "
        "(no response); broker 2 tries at 10.0.0.1:9092 since 12:00:00 (no response)"
    ]


def test_broker_that_no_fresh_report_reaches_is_named_once() -> None:
    old = (FRESH_MS, [link(1), link(3)])
    assert sentences(answer(b1=[link(2)], b3=[link(2)], b2=old)) == [
        "no broker reaches broker 2: its host or its network is down; broker 1 tries at 10.0.0.2:9092 since 12:00:00 "
        "(no response); broker 3 tries at 10.0.0.2:9092 since 12:00:00 (no response)"
    ]


def test_broker_whose_host_refuses_connections_does_not_run() -> None:
    refused = link(2, error="connection refused")
    [text] = sentences(answer(b1=[refused], b3=[refused]))
    assert text.startswith(
        "no broker reaches broker 2: its host answers, but the broker does not run there; broker 1 tries"
    )


def test_way_back_is_unknown_without_a_report_or_with_an_old_one() -> None:
    [text] = sentences(answer(b1=[link(2)], b3=[]))
    assert text.endswith("; broker 2 has told nobody whether the way back works")
    [text] = sentences(answer(b1=[link(2)], b3=[], b2=(20_000, [])))
    assert text.endswith("; broker 2 has not reported for 20 s whether the way back works")


def test_newest_report_of_a_broker_counts_whoever_passes_it_on() -> None:
    old, new = answer(b1=(9_000, [link(2)]), b2=[]), answer(b1=(1_000, []), b2=[])
    assert sentences(old, new) == sentences(new, old) == []


def test_zookeeper_is_named_like_a_broker() -> None:
    assert sentences(answer(b1=[link(None, 2181, error="its session: suspended")])) == [
        "broker 1 cannot reach ZooKeeper at zk:2181 since 12:00:00 (its session: suspended)"
    ]


def test_failure_that_has_just_begun_or_ends_at_a_stopped_broker_is_not_named() -> None:
    assert sentences(answer(b1=[link(2, for_ms=SETTLED_MS - 1)], b2=[])) == []
    assert sentences(answer(b1=[link(2)], b2=[]), away={2}) == []


def test_answer_of_an_earlier_version_and_a_malformed_one_are_ignored() -> None:
    assert sentences({}, {"links": {"x": 1}}, answer(b1=[])) == []
