"""Reading of ledgers after a crash, and merging of several brokers' ledgers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ledger.sparse_lines import completed

from minikafka.broker.ledger.reader import merged, name_of, read, read_all, read_group
from minikafka.broker.ledger.record import LOST
from minikafka.broker.ledger.writer import file_name


def line(
    broker: int, n: int, time: int, kind: str = "event", cause: str = "1-1", **fields: Any
) -> Any:
    given = {"time": time, "broker": broker, "n": n, "kind": kind, "cause": cause}
    return completed(given | fields)


def request(n: int, time: int, to: int, cause: str = "1-1") -> Any:
    return line(1, n, time, "request", cause, to=to, request="LeaderAndIsr")


def effect(broker: int, n: int, time: int, phase: str = "completed", cause: str = "1-1") -> Any:
    return line(broker, n, time, "effect", cause, phase=phase, request="LeaderAndIsr")


def response(n: int, time: int, of: int, cause: str = "1-1") -> Any:
    return line(1, n, time, "response", cause, request="LeaderAndIsr", **{"from": of})


def names(lines: list[Any]) -> list[str]:
    return [name_of(found) for found in lines]


def write(directory: Path, number: int, *texts: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / file_name(number)).write_text("".join(f"{text}\n" for text in texts))


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, 2, json.dumps(line(1, 3, 3)))
    write(tmp_path, 1, json.dumps(line(1, 1, 1)), json.dumps(line(1, 2, 2)))
    (tmp_path / "notes.txt").write_text("nothing of ours")
    assert [found["n"] for found in read(tmp_path)] == [1, 2, 3]


def test_unfinished_line_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, 1, json.dumps(line(1, 1, 1)))
    with (tmp_path / file_name(1)).open("a") as file:
        file.write('{"time":2,"broker":1,"n":2,"ki')
    assert [found["n"] for found in read(tmp_path)] == [1]


@pytest.mark.parametrize(
    "damage",
    [
        "[" * 100_000,
        "9" * 5_000,
        "[]",
        '"kind"',
        *(json.dumps(line(1, 2, 2) | {"kind": kind}) for kind in (None, 5, [], {})),
        *(json.dumps(line(1, 2, 2) | {name: "2"}) for name in ("time", "broker", "n")),
        *(json.dumps(line(1, 2, 2) | {name: True}) for name in ("time", "cause")),
        json.dumps(line(1, 2, 2) | {"time": float("nan")}),
    ],
)
def test_damaged_line_is_skipped(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 1, json.dumps(line(1, 1, 1)), damage, json.dumps(line(1, 3, 3)))
    assert [found["n"] for found in read(tmp_path)] == [1, 3]


def test_missing_directory_has_no_lines(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == []


def test_lines_of_other_topics_are_skipped_except_events(tmp_path: Path) -> None:
    write(
        tmp_path,
        1,
        json.dumps(line(1, 1, 1), separators=(",", ":")),
        json.dumps(line(1, 2, 2, "decision", partitions={"t": [0]}), separators=(",", ":")),
        json.dumps(line(1, 3, 3, "decision", partitions={"u": [0]}), separators=(",", ":")),
    )
    assert [found["n"] for found in read(tmp_path, "u")] == [1, 3]


def test_lines_of_several_brokers_are_merged_by_time() -> None:
    one = [line(1, 1, 10), line(1, 2, 30)]
    two = [line(2, 1, 20), line(2, 2, 40)]
    assert names(merged([one, two])) == ["1#1", "2#1", "1#2", "2#2"]


def test_merge_orders_request_effects_and_response_despite_wrong_broker_clocks() -> None:
    """Broker 2's clock is an hour slow, and broker 3's clock is an hour fast."""
    hour = 3_600_000
    one = [
        line(1, 1, 100),
        request(2, 101, 2),
        request(3, 101, 3),
        response(4, 120, 2),
        response(5, 121, 3),
    ]
    two = [effect(2, 1, 110 - hour, "received"), effect(2, 2, 111 - hour)]
    three = [effect(3, 1, 110 + hour, "received"), effect(3, 2, 112 + hour)]
    order = names(merged([one, two, three]))
    assert order.index("1#2") < order.index("2#1") < order.index("2#2") < order.index("1#4")
    assert order.index("1#3") < order.index("3#1") < order.index("3#2") < order.index("1#5")


def test_merge_places_both_effects_of_a_request_between_request_and_response() -> None:
    one = [request(1, 100, 2), response(2, 200, 2)]
    two = [effect(2, 1, 50), effect(2, 2, 60)]
    assert names(merged([two, one])) == ["1#1", "2#1", "2#2", "1#2"]


def test_merge_orders_an_effect_by_time_when_the_line_of_its_request_is_lost() -> None:
    """The controller's line of the request was lost when the controller was killed."""
    assert names(merged([[line(1, 1, 100)], [effect(2, 1, 50)]])) == ["2#1", "1#1"]


def test_read_all_merges_several_directories(tmp_path: Path) -> None:
    write(tmp_path / "a", 1, json.dumps(line(1, 1, 2)))
    write(tmp_path / "b", 1, json.dumps(line(2, 1, 1)))
    assert names(read_all([tmp_path / "a", tmp_path / "b"])) == ["2#1", "1#1"]


def test_ledger_line_about_lost_lines_is_named_lost_instead_of_by_a_number() -> None:
    assert name_of(line(1, 0, 0, LOST) | {"n": None}) == "1#lost"


def test_read_group_returns_the_lines_of_one_group(tmp_path: Path) -> None:
    def text(found: Any) -> str:
        return json.dumps(found, separators=(",", ":"))

    about = {"kind": "group", "cause": "", "fact": "group empty"}
    write(
        tmp_path / "a",
        1,
        text(line(1, 1, 5, **about, group="käse")),
        text(line(1, 2, 6, **about, group="other")),
        text(line(1, 3, 7, group="käse")),
    )
    write(tmp_path / "b", 1, text(line(2, 1, 4, **about, group="käse")))

    assert names(read_group([tmp_path / "a", tmp_path / "b"], "käse")) == ["2#1", "1#1"]
