"""`acls` against a client that remembers ACLs, without brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from minikafka.base.errors import ErrorCode
from minikafka.client.administration.results import Outcome
from minikafka.security.acls import AclBinding, AclFilter
from minikafka.tools.cli.main import commands


class Remembered:
    """A client, and its `acls`, with all ACLs of a cluster. ACLs in `refused` are not created."""

    def __init__(self) -> None:
        self.found: dict[AclBinding, None] = {}
        self.refused = ""
        self.acls = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, Outcome]:
        outcomes = {}
        for binding in bindings:
            if self.refused and self.refused in str(binding):
                outcomes[binding] = Outcome(ErrorCode.INVALID_REQUEST, "refused")
            else:
                self.found[binding] = None
                outcomes[binding] = Outcome(ErrorCode.NONE)
        return outcomes

    async def describe(self, selection: AclFilter) -> list[AclBinding]:
        return sorted(filter(selection.matches, self.found))

    async def delete(self, selections: Iterable[AclFilter]) -> dict[AclBinding, Outcome]:
        wanted = list(selections)
        gone = [one for one in self.found if any(filter_.matches(one) for filter_ in wanted)]
        self.found = {one: None for one in self.found if one not in gone}
        return dict.fromkeys(gone, Outcome(ErrorCode.NONE))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Remembered:
    found = Remembered()
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **options: found)
    return found


def run(line: str) -> Result:
    return CliRunner().invoke(commands, ["acls", *line.split(), "--bootstrap", "h:1"])


def texts(cluster: Remembered) -> set[str]:
    return set(map(str, cluster.found))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "--allow-principal User:alice --topic orders",
            {"ALLOW User:alice All on Topic:LITERAL:orders from host *"},
        ),
        (
            "--deny-principal User:eve --deny-host 10.0.0.1 --operation describe-configs "
            "--topic ord --resource-pattern-type prefixed",
            {"DENY User:eve DescribeConfigs on Topic:PREFIXED:ord from host 10.0.0.1"},
        ),
        (
            "--allow-principal User:alice --producer --topic t --transactional-id x",
            {
                f"ALLOW User:alice {operation} on {pattern} from host *"
                for operation, pattern in [
                    ("Write", "Topic:LITERAL:t"),
                    ("Describe", "Topic:LITERAL:t"),
                    ("Create", "Topic:LITERAL:t"),
                    ("Write", "TransactionalId:LITERAL:x"),
                    ("Describe", "TransactionalId:LITERAL:x"),
                ]
            },
        ),
        (
            "--allow-principal User:alice --producer --idempotent --topic t",
            {
                "ALLOW User:alice Write on Topic:LITERAL:t from host *",
                "ALLOW User:alice Describe on Topic:LITERAL:t from host *",
                "ALLOW User:alice Create on Topic:LITERAL:t from host *",
                "ALLOW User:alice IdempotentWrite on Cluster:LITERAL:kafka-cluster from host *",
            },
        ),
        (
            "--allow-principal User:alice --consumer --topic t --group g "
            "--resource-pattern-type prefixed",
            {
                "ALLOW User:alice Read on Topic:PREFIXED:t from host *",
                "ALLOW User:alice Describe on Topic:PREFIXED:t from host *",
                "ALLOW User:alice Read on Group:PREFIXED:g from host *",
            },
        ),
        (
            "--allow-principal User:a --allow-principal User:b --operation Alter --cluster "
            "--resource-pattern-type prefixed",
            {
                "ALLOW User:a Alter on Cluster:LITERAL:kafka-cluster from host *",
                "ALLOW User:b Alter on Cluster:LITERAL:kafka-cluster from host *",
            },
        ),
    ],
)
def test_add_creates_what_kafkas_options_describe_and_remove_takes_it_back(
    cluster: Remembered, options: str, expected: set[str]
) -> None:
    added = run(f"add {options}")
    assert added.exit_code == 0, added.output
    assert texts(cluster) == expected
    assert set(added.output.splitlines()) == {f"Added {text}." for text in expected}
    assert run("add --allow-principal User:other --topic t").exit_code == 0
    removed = run(f"remove {options}")
    assert set(removed.output.splitlines()) == {f"Removed {text}." for text in expected}
    assert texts(cluster) == {"ALLOW User:other All on Topic:LITERAL:t from host *"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("add --topic t", "name a principal"),
        ("add --allow-principal User:a", "name a resource"),
        ("add --allow-principal alice --topic t", "must have the form type:name"),
        ("add --allow-principal User:a --topic t --operation read,write", "is not one of All"),
        ("add --allow-principal User:a --topic t --operation Any", "is not one of All"),
        ("add --allow-principal User:a --topic t --operation ClusterAction", "Topic has no"),
        ("add --allow-principal User:a --topic t --deny-host h", "needs --deny-principal"),
        ("add --deny-principal User:a --topic t --allow-host h", "needs --allow-principal"),
        ("add --deny-principal User:a --topic t --producer", "--producer and --consumer allow"),
        ("add --allow-principal User:a --topic t --consumer", "needs --topic and --group"),
        ("add --allow-principal User:a --group g --producer", "--producer needs --topic"),
        ("add --allow-principal User:a --cluster --topic t --producer", "no use for Cluster"),
        ("add --allow-principal User:a --idempotent --topic t", "--idempotent needs --producer"),
        ("remove --topic t", "give --force"),
        ("remove --force", "name a resource"),
        ("remove --operation Read --topic t --force", "name a principal"),
    ],
)
def test_options_that_describe_no_acl_are_a_usage_error(
    cluster: Remembered, line: str, reason: str
) -> None:
    done = run(line)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
    assert not cluster.found


def test_list_shows_the_acls_that_concern_a_name(cluster: Remembered) -> None:
    for options in (
        "--allow-principal User:alice --topic orders",
        "--allow-principal User:bob --topic ord --resource-pattern-type prefixed",
        "--deny-principal User:eve --topic *",
        "--allow-principal User:alice --topic other",
    ):
        assert run(f"add {options}").exit_code == 0
    rows = run("list --topic orders").output.splitlines()
    assert rows[0].split() == [
        "PRINCIPAL",
        "PERMISSION",
        "OPERATION",
        "RESOURCE",
        "NAME",
        "PATTERN",
        "HOST",
    ]
    assert [row.split()[0] for row in rows[1:]] == ["User:eve", "User:bob", "User:alice"]
    exact = run("list --topic orders --resource-pattern-type literal --json")
    assert json.loads(exact.output) == [
        {
            "principal": "User:alice",
            "permission": "Allow",
            "operation": "All",
            "resource": "Topic",
            "name": "orders",
            "pattern": "Literal",
            "host": "*",
        }
    ]
    assert "other" in run("list --principal User:alice").output
    assert run("list --principal User:nobody").output == "There are no such ACLs.\n"


def test_remove_with_force_removes_all_acls_of_exactly_the_names(cluster: Remembered) -> None:
    run("add --allow-principal User:alice --topic ord --resource-pattern-type prefixed")
    run("add --allow-principal User:alice --deny-principal User:eve --topic orders")
    assert run("remove --topic orders --force").exit_code == 0
    assert texts(cluster) == {"ALLOW User:alice All on Topic:PREFIXED:ord from host *"}


def test_remove_fails_if_there_is_no_such_acl(cluster: Remembered) -> None:
    done = run("remove --allow-principal User:alice --topic orders")
    assert done.exit_code == 1
    assert "there are no such ACLs" in str(done.exception)


def test_refused_acls_are_named_and_the_others_are_created(cluster: Remembered) -> None:
    cluster.refused = "bad"
    done = run("add --allow-principal User:alice --topic bad --topic good")
    assert done.exit_code == 1
    assert "INVALID_REQUEST: ALLOW User:alice All on Topic:LITERAL:bad" in done.output
    assert texts(cluster) == {"ALLOW User:alice All on Topic:LITERAL:good from host *"}


def test_json_of_add_has_the_outcome_of_each_acl(cluster: Remembered) -> None:
    cluster.refused = "bad"
    done = run("add --allow-principal User:alice --topic bad --topic good --json")
    rows: list[dict[str, Any]] = json.loads(done.output.splitlines()[0])
    assert {row["name"]: row["error"] for row in rows} == {"bad": "INVALID_REQUEST", "good": None}
