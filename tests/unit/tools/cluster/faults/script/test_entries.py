"""A fault script is read and checked before anything is harmed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.cases import for_each

from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.faults.script.entries import (
    AfterPrevious,
    AfterRequests,
    At,
    AtStep,
    Known,
    ScriptEntry,
    parse_file,
    parse_rows,
)

KNOWN = Known((1, 2), ("creation.topic", "deletion.topic"), ("Produce", "Fetch"))


def one(known: Known = KNOWN, **row: object) -> ScriptEntry:
    """Return the entry of a row; `for_` stands for the key `for`."""
    return parse_rows([{key.rstrip("_"): value for key, value in row.items()}], "", known)[0]


def test_file_has_the_entries_of_a_list_of_mappings():
    text = """
        [[fault]]
        do = "kill"
        broker = 1
        after = { api = "Produce", n = 100, broker = 2 }
        for = 2.5

        [[fault]]
        do = "fill-disk"
        broker = "leader of t-0"
        after_previous = 1
        for = 1
        times = 3
        gap = 0.5
    """
    rows = [
        {
            "do": "kill",
            "broker": 1,
            "after": {"api": "Produce", "n": 100, "broker": 2},
            "for": 2.5,
        },
        {
            "do": "fill_disk",
            "broker": "leader of t-0",
            "after_previous": 1,
            "for": 1,
            "times": 3,
            "gap": 0.5,
        },
    ]

    entries = parse_file(text, "faults.toml", KNOWN)

    assert [entry.place for entry in entries] == ["faults.toml, entry 1", "faults.toml, entry 2"]
    assert [entry.name for entry in entries] == ["kill 1", "fill-disk leader of t-0"]
    assert [entry.trigger for entry in entries] == [
        AfterRequests("Produce", 100, 2),
        AfterPrevious(1),
    ]
    assert (entries[1].seconds, entries[1].times, entries[1].gap) == (1, 3, 0.5)
    assert [vars(entry) | {"place": ""} for entry in parse_rows(rows, "", KNOWN)] == [
        vars(entry) | {"place": ""} for entry in entries
    ]


def test_entry_begins_at_once_without_a_trigger():
    assert one(do="kill", broker="zookeeper").trigger == At(0)
    assert one(do="pause", broker="held", at_step="creation.topic").trigger == AtStep(
        "creation.topic"
    )


def test_only_faults_that_can_be_healed_last_until_the_end_of_the_script():
    assert one(do="cut", a=1, b="clients").is_held
    assert one(do="fail_sync", broker=1).is_held
    assert not one(do="kill", broker=1).is_held
    assert not one(do="cut", a=1, b="clients", for_=0.1).is_held


REFUSED: dict[str, dict[str, Any]] = {
    "lacks the key do": {},
    "unknown verb 'kil'; the nearest are kill,": {"do": "kil", "broker": 1},
    "unknown verb 3; the nearest are": {"do": 3},
    "kill has no key 'brokr'; the nearest are broker,": {"do": "kill", "brokr": 1},
    "kill needs the key broker": {"do": "kill"},
    "there is no broker 9, the cluster has 1, 2": {"do": "kill", "broker": 9},
    "broker must be the id of a broker, or one of zookeeper, controller, held, "
    "leader of TOPIC-PARTITION, got '1'": {"do": "kill", "broker": "1"},
    "or one of controller, held, leader of TOPIC-PARTITION, got 'zookeeper'": {
        "do": "restart",
        "broker": "zookeeper",
    },
    "got True": {"do": "kill", "broker": True},
    "delay needs the key ms": {"do": "delay", "a": 1, "b": 2},
    "ms must be a whole number from 1 to 3600000, got '5'": {
        "do": "delay",
        "a": 1,
        "b": 2,
        "ms": "5",
    },
    "ms must be a whole number from 1 to 3600000, got -5": {
        "do": "delay",
        "a": 1,
        "b": 2,
        "ms": -5,
    },
    "ms must be a whole number from 1 to 3600000, got 0": {"do": "delay", "a": 1, "b": 2, "ms": 0},
    "ms must be a whole number from 1 to 3600000, got 3600001": {
        "do": "slow_sync",
        "broker": 1,
        "ms": 3_600_001,
    },
    "the two ends of a connection must differ": {"do": "cut", "a": 1, "b": 1},
    "between 1 and clients there is no link control": {
        "do": "cut",
        "a": 1,
        "b": "clients",
        "link": "control",
    },
    "link must be one of all, control, fetch, zookeeper, got 'fetc'": {
        "do": "cut",
        "a": 1,
        "b": 2,
        "link": "fetc",
    },
    "log_dir must be a text, got ''": {"do": "fail_sync", "broker": 1, "log_dir": ""},
    "pause must be true or false, got 1": {"do": "lose_coordinator", "group": "g", "pause": 1},
    "lose_coordinator needs either group or transactional_id": {"do": "lose_coordinator"},
    "at must be a number of seconds from 0 to 86400, got -1": {
        "do": "kill",
        "broker": 1,
        "at": -1,
    },
    "for must be a number of seconds from 0 to 86400, got nan": {
        "do": "kill",
        "broker": 1,
        "for": float("nan"),
    },
    "got True ": {"do": "kill", "broker": 1, "at": True},
    "times must be a whole number from 1 to": {"do": "kill", "broker": 1, "times": 0},
    "has the triggers at and at_step": {"do": "kill", "broker": 1, "at": 1, "at_step": "x"},
    "there is no step 'creation.tpic'; the nearest are creation.topic,": {
        "do": "kill",
        "broker": 1,
        "at_step": "creation.tpic",
    },
    'after must be of the form { api = "Produce", n = 100 }, got 3': {
        "do": "kill",
        "broker": 1,
        "after": 3,
    },
    "after has no key 'm'; it has api, n and broker": {
        "do": "kill",
        "broker": 1,
        "after": {"api": "Fetch", "m": 1},
    },
    "there is no API 'Prodce'; the nearest are Produce,": {
        "do": "kill",
        "broker": 1,
        "after": {"api": "Prodce"},
    },
    "n must be a whole number of at least 1, got 0": {
        "do": "kill",
        "broker": 1,
        "after": {"api": "Fetch", "n": 0},
    },
    "there is no broker 3, the cluster has 1, 2": {
        "do": "kill",
        "broker": 1,
        "after": {"api": "Fetch", "broker": 3},
    },
    "the broker held needs the trigger at_step": {"do": "kill", "broker": "held"},
    "gap is the time between repetitions": {"do": "restart", "broker": 1, "gap": 2},
    "restart does not last: leave out for": {"do": "restart", "broker": 1, "for": 1},
    "cut needs for, a number of seconds: it is repeated": {
        "do": "cut",
        "a": 1,
        "b": 2,
        "times": 2,
    },
    "entry 1: after_previous needs an entry before it": {
        "do": "kill",
        "broker": 1,
        "after_previous": 1,
    },
}


@for_each(REFUSED)
def test_invalid_entry_is_refused_with_its_place_and_the_valid_names(row: dict[str, Any]) -> None:
    wanted = next(text for text, known in REFUSED.items() if known is row).strip()
    with pytest.raises(ClusterError, match=re.escape(wanted)) as error:
        parse_rows([row], "faults.toml, ", KNOWN)
    assert str(error.value).startswith("faults.toml, entry 1")


@pytest.mark.parametrize(
    ("change", "row", "error"),
    [
        (
            {"has_faults": False},
            {"do": "cut", "a": 1, "b": 2},
            "cut needs LocalCluster(faults=True)",
        ),
        (
            {"has_faults": False},
            {"do": "kill", "broker": 1, "after": {"api": "Fetch"}},
            "after needs LocalCluster(faults=True)",
        ),
        (
            {"runs_zookeeper": False},
            {"do": "kill", "broker": "zookeeper"},
            "no ZooKeeper of its own",
        ),
        (
            {"is_endless": False},
            {"do": "cut", "a": 1, "b": 2},
            "cut needs for, a number of seconds",
        ),
    ],
)
def test_entry_that_the_cluster_cannot_have_is_refused(
    change: dict[str, bool], row: dict[str, object], error: str
):
    with pytest.raises(ClusterError, match=re.escape(error)):
        parse_rows([row], "", KNOWN._replace(**change))


def test_second_entry_is_refused_by_its_number():
    kill = {"do": "kill", "broker": 1}
    with pytest.raises(ClusterError, match="entry 2: there is no broker 7"):
        parse_rows([kill, {"do": "kill", "broker": 7}], "", KNOWN)
    with pytest.raises(
        ClusterError, match="entry 2 waits for the end of entry 1, which has no `for`"
    ):
        parse_rows([{"do": "fail_sync", "broker": 1}, kill | {"after_previous": 0}], "", KNOWN)
    with pytest.raises(ClusterError, match="the script, entry 1 is missing"):
        parse_rows([], "", KNOWN)


@pytest.mark.parametrize("script", [None, 5, b"[[fault]]", {"do": "kill", "broker": 1}])
def test_value_that_is_no_script_is_refused(script: object):
    text = f"a script must be the path of a file, or a list of entries, got {script!r}"
    with pytest.raises(ClusterError, match=re.escape(text)):
        parse_rows(script, "", KNOWN)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[fault]", "faults.toml: invalid TOML"),
        ("", "faults.toml: a script has one or more tables [[fault]]"),
        ("[fault]\ndo = 'kill'", "faults.toml: a script has one or more tables [[fault]]"),
        ("[[fautl]]\ndo = 'kill'", "faults.toml: unknown key 'fautl'"),
        ("fault = [3]", "faults.toml, entry 1: must be a table of keys and values, got 3"),
    ],
)
def test_file_that_is_no_script_is_refused(text: str, error: str):
    with pytest.raises(ClusterError, match=re.escape(error)):
        parse_file(text, "faults.toml", KNOWN)
