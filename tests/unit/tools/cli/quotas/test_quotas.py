"""`quotas` against a client that remembers quotas, without brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self

import pytest
from click.testing import CliRunner, Result

from minikafka.base.errors import ErrorCode
from minikafka.client.administration.results import Outcome
from minikafka.security.quotas import DEFAULT, QuotaEntity
from minikafka.tools.cli.main import commands


class Remembered:
    """A client, and its `quotas`."""

    def __init__(self) -> None:
        self.found: dict[QuotaEntity, dict[str, float]] = {}
        self.quotas = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def alter(self, owner: QuotaEntity, changes: Mapping[str, float | None]) -> Outcome:
        mine = self.found.setdefault(owner, {})
        for key, value in changes.items():
            mine.pop(key, None)
            if value is not None:
                mine[key] = value
        return Outcome(ErrorCode.NONE)

    async def describe(self, owner: QuotaEntity) -> dict[QuotaEntity, dict[str, float]]:
        def has(one: QuotaEntity) -> bool:
            return all(part in (None, name) for part, name in zip(owner, one, strict=True))

        return {one: values for one, values in self.found.items() if has(one)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Remembered:
    found = Remembered()
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **options: found)
    return found


def run(line: str) -> Result:
    return CliRunner().invoke(commands, ["quotas", *line.split(), "--bootstrap", "h:1"])


@pytest.mark.parametrize(
    ("options", "owner", "shown"),
    [
        ("--user alice", QuotaEntity("alice"), "user alice"),
        ("--user-defaults", QuotaEntity(DEFAULT), "any user"),
        ("--client web", QuotaEntity(client_id="web"), "client id web"),
        ("--user a --client web", QuotaEntity("a", "web"), "user a, client id web"),
        ("--user a --client-defaults", QuotaEntity("a", DEFAULT), "user a, any client id"),
    ],
)
def test_set_changes_the_quotas_of_the_named_owner(
    cluster: Remembered, options: str, owner: QuotaEntity, shown: str
) -> None:
    done = run(f"set {options} producer_byte_rate=1048576 request_percentage=12.5")
    assert done.output == f"Changed quotas of {shown}.\n"
    assert cluster.found == {owner: {"producer_byte_rate": 1048576, "request_percentage": 12.5}}
    assert run(f"set {options} --delete producer_byte_rate").exit_code == 0
    assert cluster.found == {owner: {"request_percentage": 12.5}}


def test_quota_of_an_address_is_that_of_connections(cluster: Remembered) -> None:
    assert run("set --ip 10.0.0.1 connection_creation_rate=5").exit_code == 0
    assert run("set --ip 10.0.0.1 producer_byte_rate=5").exit_code == 2
    assert cluster.found == {QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("set producer_byte_rate=1", "name an owner"),
        ("set --user alice", "name quotas"),
        ("set --user alice --delete producer_byte_rate producer_byte_rate=1", "each once"),
        ("set --user alice bytes=1", "bytes is not a quota of this owner"),
        ("set --user alice connection_creation_rate=1", "not a quota of this owner"),
        ("set --user alice producer_byte_rate=fast", "must be a number of at least 0"),
        ("set --user alice producer_byte_rate=-1", "must be a number of at least 0"),
        ("set --user alice producer_byte_rate=nan", "must be a number of at least 0"),
        ("set --user alice --user-defaults producer_byte_rate=1", "not both"),
        ("set --user alice --ip h connection_creation_rate=1", "cannot be combined"),
    ],
)
def test_options_that_set_nothing_are_a_usage_error(
    cluster: Remembered, line: str, reason: str
) -> None:
    done = run(line)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
    assert not cluster.found


def test_list_shows_the_quotas_of_the_named_owners(cluster: Remembered) -> None:
    assert run("list").output == "There are no such quotas.\n"
    run("set --user alice producer_byte_rate=1048576")
    run("set --client web request_percentage=12.5")
    assert run("list").output.splitlines()[0].split() == ["OWNER", "QUOTA", "VALUE"]
    assert "user alice    producer_byte_rate 1048576\n" in run("list").output
    assert json.loads(run("list --client web --json").output) == [
        {"owner": "client id web", "quota": "request_percentage", "value": 12.5}
    ]
