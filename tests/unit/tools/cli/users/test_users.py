"""`users` against a client that remembers credentials, without brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from minikafka.base.errors import ErrorCode
from minikafka.client.administration.results import Outcome
from minikafka.client.administration.scram_admin import (
    NewPassword,
    OldPassword,
    ScramInfo,
    ScramUser,
)
from minikafka.security import scram
from minikafka.tools.cli.main import commands

OK = Outcome(ErrorCode.NONE)
MISSING = Outcome(ErrorCode.RESOURCE_NOT_FOUND, "there is no such user")


class Remembered:
    """A client, and its `users`, with all credentials of a cluster."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], NewPassword] = {}
        self.users = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def alter(
        self, written: Iterable[NewPassword] = (), deleted: Iterable[OldPassword] = ()
    ) -> dict[str, Outcome]:
        outcomes = {}
        for one in written:
            self.found[one.user, one.mechanism.name] = one
            outcomes[one.user] = OK
        for old in deleted:
            gone = self.found.pop((old.user, old.mechanism.name), None)
            outcomes[old.user] = OK if gone else MISSING
        return outcomes

    async def describe(self, users: Iterable[str] | None = None) -> dict[str, ScramUser]:
        known: dict[str, list[ScramInfo]] = {}
        for (name, mechanism), one in self.found.items():
            known.setdefault(name, []).append(ScramInfo(mechanism, one.iterations))
        return {
            name: ScramUser(OK if name in known else MISSING, tuple(known.get(name, ())))
            for name in (known if users is None else users)
        }

    def accepts(self, user: str, mechanism: str, password: str) -> bool:
        one = self.found[user, mechanism]
        return one.salted == scram.salted_password(
            one.mechanism, password, one.salt, one.iterations
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Remembered:
    found = Remembered()
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **options: found)
    return found


def run(line: str, given: str | bytes = "") -> Result:
    return CliRunner().invoke(commands, ["users", *line.split(), "--bootstrap", "h:1"], given)


def test_password_is_the_first_line_of_standard_input(cluster: Remembered) -> None:
    done = run("add alice", "s ecret é\r\nmore\n")
    assert done.output == "alice can log in with SCRAM-SHA-512.\n"
    assert cluster.accepts("alice", "SCRAM-SHA-512", "s ecret é")


def test_password_is_the_first_line_of_a_file(cluster: Remembered, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    mechanisms = "--mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --iterations 8192"
    assert run(f"add alice {mechanisms} --password-file {file}", "other\n").exit_code == 0
    for name in scram.BY_NAME:
        assert cluster.accepts("alice", name, "secret")
        assert cluster.found["alice", name].iterations == 8192
    assert len({one.salt for one in cluster.found.values()}) == 2


def test_password_is_asked_for_twice_at_a_terminal(
    cluster: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["secret", "secret", "secret", "sceret"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True)
    assert run("add alice").exit_code == 0
    assert cluster.accepts("alice", "SCRAM-SHA-512", "secret")
    assert "the passwords differ" in str(run("add bob").exception)
    assert "bob" not in {name for name, _ in cluster.found}


@pytest.mark.parametrize(
    ("given", "reason"),
    [("", "standard input is empty"), ("\nsecret", "is empty"), (b"\xff\n", "must be UTF-8")],
)
def test_missing_password_is_an_error_that_changes_nothing(
    cluster: Remembered, given: str | bytes, reason: str
) -> None:
    done = run("add alice", given)
    assert reason in str(done.exception)
    assert not cluster.found


@pytest.mark.parametrize(
    "line", ["add alice secret", "add alice --password secret", "add alice --iterations 4095"]
)
def test_password_in_an_argument_and_few_iterations_are_usage_errors(
    cluster: Remembered, line: str
) -> None:
    assert run(line, "secret\n").exit_code == 2
    assert not cluster.found


def test_list_shows_mechanisms_and_iterations(cluster: Remembered) -> None:
    assert run("list").output == "There are no users with SCRAM.\n"
    run("add bob --mechanism SCRAM-SHA-256", "secret\n")
    run("add alice --iterations 8192", "secret\n")
    assert [line.split() for line in run("list").output.splitlines()] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["alice", "SCRAM-SHA-512", "8192"],
        ["bob", "SCRAM-SHA-256", "4096"],
    ]
    named = run("list bob nobody --json")
    assert named.exit_code == 1
    assert json.loads(named.output.splitlines()[0]) == [
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    ]
    assert "RESOURCE_NOT_FOUND: nobody: there is no such user" in named.output


def test_remove_deletes_all_credentials_of_a_user_or_those_of_one_mechanism(
    cluster: Remembered,
) -> None:
    both = "--mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512"
    for user in ("alice", "bob"):
        run(f"add {user} {both}", "secret\n")
    assert run("remove alice --mechanism SCRAM-SHA-256").exit_code == 0
    assert set(cluster.found) == {
        ("alice", "SCRAM-SHA-512"),
        ("bob", "SCRAM-SHA-256"),
        ("bob", "SCRAM-SHA-512"),
    }
    done = run("remove bob nobody")
    assert done.exit_code == 1
    assert "Removed credentials of bob." in done.output
    assert set(cluster.found) == {("alice", "SCRAM-SHA-512")}
