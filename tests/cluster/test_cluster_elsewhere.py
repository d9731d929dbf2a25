"""Commands with only the address of a cluster and a login: they know what its brokers tell, and say what they miss."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.clusters.running_cluster import eventually
from support.commands.commands import Ended, call
from support.rows import proof

from minikafka.base.coordination import MODES
from minikafka.tools.cluster import LocalCluster

KEYS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "zookeeper.session.timeout.ms": 2_000,
    "minikafka.leaders.election.wait.ms": 300,
    "auto.leader.rebalance.enable": False,
    "offsets.topic.num.partitions": 1,
}


class Elsewhere(NamedTuple):
    """A cluster, and a folder with a profile file for two of its users, which names nothing in its data directory.

    `dead`: a broker that was killed, and that was not the controller.
    """

    cluster: LocalCluster
    folder: Path
    dead: int = 0

    async def here(self, *words: str) -> Any:
        """Return the JSON of a command on the data directory."""
        return answer(await call(*words, "--data", str(self.cluster.directory.path), "--json"))

    async def away(self, *words: str, profile: str = "doctor") -> Any:
        """Return the JSON of a command that knows only the profile."""
        return answer(await call("--cluster", profile, *words, "--json"))


def answer(ended: Ended) -> Any:
    assert ended.out, ended.err
    return json.loads(ended.out)


@pytest.fixture(scope="module", params=MODES)
def elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Elsewhere]:
    data, folder = (tmp_path_factory.mktemp(name) for name in ("data", "laptop"))
    cluster = LocalCluster(3, data=data, config=KEYS, coordination=request.param, secure=True)
    try:
        dead = asyncio.run(prepare(cluster, folder))
        yield Elsewhere(cluster, folder, dead)
    finally:
        asyncio.run(cluster.stop())


async def prepare(cluster: LocalCluster, folder: Path) -> int:
    """Start the cluster, give the user doctor the right to ask, kill a broker, and wait until the others know it."""
    await cluster.start()
    where = ("--data", str(cluster.directory.path))
    (folder / "password").write_text("doctors secret\n")
    for words in (
        ("topics", "create", "t", "--partitions", "3"),
        ("users", "add", "doctor", "--password-file", str(folder / "password")),
        ("acls", "add", "--allow-principal", "User:doctor", "--operation", "Describe", "--cluster"),
        (
            *("acls", "add", "--allow-principal", "User:doctor"),
            *("--operation", "Describe", "--topic", "t", "--topic", "__consumer_offsets"),
        ),
    ):
        ended = await call(*words, *where)
        assert ended.code == 0, ended.err
    dead = 2 if (await cluster.state()).controller != 2 else 3
    await cluster.kill(dead)

    async def is_known() -> bool:
        answers = (await cluster.state()).answers.values()
        return not any(dead in one["live_brokers"] for one in answers)

    await eventually(is_known)
    security = cluster.directory.path / "security"
    shutil.copy(security / "ca.pem", folder)
    text = (security / "alice.properties").read_text()
    login = next(line for line in text.splitlines() if line.startswith("sasl.jaas.config="))
    logins = {"alice": login.partition("=")[2], "doctor": LOGIN}
    (folder / "minikafka").mkdir()
    file = folder / "minikafka" / "config.toml"
    file.write_text("".join(profile(name, cluster, logins[name]) for name in logins))
    file.chmod(0o600)
    return dead


LOGIN = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="doctor" password="doctors secret";'
)


def profile(name: str, cluster: LocalCluster, login: str) -> str:
    return f"""
[clusters.{name}]
bootstrap = "{cluster.bootstrap}"
security.protocol = "SASL_SSL"
ssl.truststore.type = "PEM"
ssl.truststore.location = "../ca.pem"
sasl.mechanism = "SCRAM-SHA-512"
sasl.jaas.config = '{login}'
"""


@pytest.fixture(autouse=True)
def laptop(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    proof.note(proof.Level.REAL, elsewhere.cluster.record.coordination)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(elsewhere.folder))
    monkeypatch.chdir(elsewhere.folder)


async def test_doctors_tell_over_the_network_what_they_tell_from_files(
    elsewhere: Elsewhere,
) -> None:
    here, away = await asyncio.gather(elsewhere.here("status"), elsewhere.away("status"))
    for key in ("controller", "controller_epoch", "coordination"):
        assert away[key] == here[key]
    assert away["partitions"] == here["partitions"]
    dead = elsewhere.dead
    states = {one["id"]: one["state"] for one in away["brokers"]}
    assert states == {**dict.fromkeys((1, 2, 3), "up"), dead: "unreachable"}
    assert away["causes"][0]["broker"] == dead

    for tp in ("t-0", "t-1"):
        here, away = await asyncio.gather(elsewhere.here("why", tp), elsewhere.away("why", tp))
        for key in ("leader", "leader_epoch", "isr", "replicas", "high_watermark", "healthy"):
            assert away[key] == here[key]
        assert dead in away["blocking_brokers"]
        assert outline(away["findings"]) == outline(here["findings"])
    assert any(f"broker {dead}" in text and "ledger" in text for text in away["unseen"])

    here, away = await asyncio.gather(
        elsewhere.here("trace", "t-1"), elsewhere.away("trace", "t-1")
    )
    lines = [
        {(line["broker"], line["n"]) for chain in one["chains"] for line in chain["lines"]}
        for one in (here, away)
    ]
    assert lines[1] == {line for line in lines[0] if line[0] != dead}
    assert lines[1]

    here, away = await asyncio.gather(
        elsewhere.here("cluster", "health"), elsewhere.away("cluster", "health")
    )
    for key in ("brokers_away", "offline_partitions", "controller", "coordination", "healthy"):
        assert away[key] == here[key]
    assert away["under_replicated_partitions"] == here["under_replicated_partitions"]


def outline(findings: list[dict[str, Any]]) -> list[Any]:
    """Return the names and brokers of findings and their causes.

    On its machine, the broker that was killed is known to be down, so that links to it say nothing more.
    """
    same = {"broker-silent": "broker-down"}
    return [
        (same.get(one["name"], one["name"]), one["brokers"], outline(one["because"]))
        for one in findings
        if one["name"] != "link-broken"
    ]


async def test_plan_over_the_network_is_that_of_the_controller(elsewhere: Elsewhere) -> None:
    words = ("plan", "kill-broker", "1")
    if elsewhere.cluster.record.coordination == "leaders":
        ended = await call("--cluster", "doctor", *words)
        assert (ended.code, "has no plan" in ended.err) == (1, True)
        return
    here, away = await asyncio.gather(elsewhere.here(*words), elsewhere.away(*words))
    assert [line["kind"] for line in away["lines"]] == [line["kind"] for line in here["lines"]]
    assert away["question"] == here["question"]


async def test_user_without_the_right_gets_no_answer_and_a_command_that_grants_it(
    elsewhere: Elsewhere,
) -> None:
    asked = [("status",), ("why", "t-0"), ("trace", "t-0"), ("plan", "kill-broker", "1")]
    for ended in await asyncio.gather(*(call("--cluster", "alice", *words) for words in asked)):
        assert (ended.code, ended.out) == (1, "")
        assert "--operation Describe --cluster` grants it" in ended.err
    found = await elsewhere.away("cluster", "health", profile="alice")
    assert any("no ACL lets the client describe the cluster" in text for text in found["unseen"])
    assert "no controller answers" not in found["reasons"]
