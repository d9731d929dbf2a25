"""The commands about consumer groups, and `consume --group`, against real brokers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from support.clusters.running_cluster import create_topic
from support.commands.commands import ENVIRONMENT, NEW_INTERPRETER, Ended, call

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.tools.cluster import LocalCluster

PARTITIONS = 4
MOMENT = 1_700_000_000_000
"""Timestamp (Unix ms) of the first record of each partition; each next record is one second later."""


async def run(cluster: LocalCluster, *arguments: str) -> Ended:
    return await call(*arguments, "--bootstrap", cluster.bootstrap)


async def groups(cluster: LocalCluster, *arguments: str, code: int = 0) -> Ended:
    done = await run(cluster, "groups", *arguments)
    assert done.code == code, done
    return done


async def rows(cluster: LocalCluster, group: str) -> list[dict[str, Any]]:
    shown = json.loads((await groups(cluster, "describe", group, "--json")).out)
    found: list[dict[str, Any]] = shown[0]["partitions"]
    return found


async def fill(cluster: LocalCluster, topic: str, count: int = 10) -> None:
    """Create a topic and write `count` old records to each partition; the value is `PARTITION-NUMBER`."""
    async with Client(cluster.bootstrap) as client:
        kept = {"retention.ms": "-1"}
        await client.create_topics(NewTopic(topic, PARTITIONS, 3, configs=kept))
        for partition in range(PARTITIONS):
            records = [
                Record(timestamp=MOMENT + 1000 * i, value=b"%d-%d" % (partition, i))
                for i in range(count)
            ]
            await client.produce(topic, records, partition=partition)


async def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    offsets = {TopicPartition(topic, number): offset for number in range(PARTITIONS)}
    async with Client(cluster.bootstrap) as client:
        outcomes = await client.groups.alter_offsets(group, offsets)
    assert all(outcome.ok for outcome in outcomes.values())


@asynccontextmanager
async def member(cluster: LocalCluster, group: str, topic: str) -> AsyncIterator[None]:
    """Run a group member that is assigned all partitions of the topic, until the block ends."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        client_id="holder",
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=300_000,  # commits only at the end
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    async with consumer:
        await consumer.getone()
        yield


async def test_groups_are_described_with_their_lag(cluster: LocalCluster) -> None:
    await fill(cluster, "lag")
    await commit(cluster, "lag-idle", "lag", 7)
    async with member(cluster, "lag-busy", "lag"):
        listed = (await groups(cluster, "list", "--state", "stable,empty")).out.splitlines()
        states = [line.split() for line in listed]
        assert ["lag-idle", "Empty"] in states
        assert ["lag-busy", "Stable"] in states
        assert "lag-busy" in (await groups(cluster, "list")).out.splitlines()
        only = json.loads((await groups(cluster, "list", "--state", "Stable", "--json")).out)
        assert {"group": "lag-busy", "state": "Stable"} in only
        assert "lag-idle" not in [listing["group"] for listing in only]
        both = await groups(cluster, "describe", "lag-idle", "lag-busy")
        assert both.err == "Consumer group 'lag-idle' has no active members.\n"
        lines = both.out.splitlines()
        assert lines[1].split() == ["lag-idle", "lag", "0", "7", "10", "3", "-", "-", "-"]
        busy = lines[-1].split()
        assert [*busy[:6], busy[8]] == ["lag-busy", "lag", "3", "-", "10", "-", "holder"]
        members = (await groups(cluster, "describe", "lag-busy", "--members", "--verbose")).out
        assert members.splitlines()[1].split()[-2:] == ["4", "lag(0,1,2,3)"]
        state = (await groups(cluster, "describe", "-g", "lag-busy", "--state")).out
        assert state.splitlines()[1].split()[3:] == ["range", "Stable", "1"]
        everything = json.loads((await groups(cluster, "describe", "--all-groups", "--json")).out)
        assert {"lag-idle", "lag-busy"} <= {group["group"] for group in everything}
    unknown = await groups(cluster, "describe", "lag-idle", "lag-nobody", code=1)
    assert "GROUP_ID_NOT_FOUND: lag-nobody" in unknown.err
    assert "lag-idle" in unknown.out


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--to-earliest",), [0, 0, 0, 0]),
        (("--to-latest",), [10, 10, 10, 10]),
        (("--to-current",), [4, 4, 4, 4]),
        (("--to-offset", "6"), [6, 6, 6, 6]),
        (("--shift-by", "-3"), [1, 1, 1, 1]),
        (("--shift-by", "99"), [10, 10, 10, 10]),
        (("--to-datetime", "2023-11-14T22:13:22.500"), [3, 3, 3, 3]),
        (("--to-datetime", "2033-01-01T00:00:00.000"), [10, 10, 10, 10]),
        (("--by-duration", "P20000D"), [0, 0, 0, 0]),
    ],
)
async def test_reset_without_execute_shows_the_new_offsets_and_changes_nothing(
    cluster: LocalCluster, option: tuple[str, ...], expected: list[int]
) -> None:
    async with Client(cluster.bootstrap) as client:
        if "reset" not in await client.list_topics():
            await fill(cluster, "reset")
            await commit(cluster, "reset-group", "reset", 4)
    arguments = ("reset-offsets", "reset-group", "--all-topics", *option)
    shown = json.loads((await groups(cluster, *arguments, "--json")).out)
    assert [row["new_offset"] for row in shown] == expected
    assert [row["current_offset"] for row in await rows(cluster, "reset-group")] == [4] * 4


async def test_exported_offsets_are_restored_from_the_file(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await fill(cluster, "saved")
    await commit(cluster, "saved-group", "saved", 4)
    reset = ("reset-offsets", "saved-group")
    exported = await groups(cluster, *reset, "--all-topics", "--to-current", "--export")
    assert exported.out == "saved,0,4\nsaved,1,4\nsaved,2,4\nsaved,3,4\n"
    moved = await groups(cluster, *reset, "--topic", "saved:0,2", "--to-latest", "--execute")
    assert [line.split()[2:] for line in moved.out.splitlines()[1:]] == [["0", "10"], ["2", "10"]]
    assert [row["lag"] for row in await rows(cluster, "saved-group")] == [0, 6, 0, 6]
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out)
    await groups(cluster, *reset, "--from-file", str(file), "--execute")
    assert [row["lag"] for row in await rows(cluster, "saved-group")] == [6, 6, 6, 6]


async def test_offset_reset_and_deletion_are_refused_while_the_group_has_members(
    cluster: LocalCluster,
) -> None:
    await fill(cluster, "kept")
    scope = ("--topic", "kept")
    async with member(cluster, "kept-group", "kept"):
        reset = ("reset-offsets", "kept-group", *scope, "--to-latest", "--execute")
        refused = await groups(cluster, *reset, code=1)
        assert "group 'kept-group' is inactive, but its state is Stable" in refused.err
        refused = await groups(cluster, "delete", "kept-group", code=1)
        assert "NON_EMPTY_GROUP: kept-group: the group has members" in refused.err
        refused = await groups(cluster, "delete-offsets", "kept-group", *scope, code=1)
        assert refused.out.count("GROUP_SUBSCRIBED_TO_TOPIC") == PARTITIONS
    assert [row["current_offset"] for row in await rows(cluster, "kept-group")].count(1) == 1


async def test_offsets_and_groups_are_deleted(cluster: LocalCluster) -> None:
    await fill(cluster, "forgotten")
    await commit(cluster, "gone-group", "forgotten", 4)
    deleted = await groups(cluster, "delete-offsets", "gone-group", "--topic", "forgotten:0,1")
    assert deleted.out.count("Successful") == 2
    assert [row["partition"] for row in await rows(cluster, "gone-group")] == [2, 3]
    done = await groups(cluster, "delete", "gone-group", "gone-nobody", code=1)
    assert done.out == "Deleted group gone-group.\n"
    assert "GROUP_ID_NOT_FOUND: gone-nobody: there is no such group" in done.err
    assert "gone-group" not in (await groups(cluster, "list")).out.splitlines()
    missing = await groups(cluster, "delete-offsets", "gone-group", "--topic", "forgotten", code=1)
    assert "GROUP_ID_NOT_FOUND: gone-group: there is no such group" in missing.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--topic", "never-made", "--to-latest"), "never-made: no such topic"),
        (("--topic", "errors:9", "--to-latest"), "errors-9: no such partition"),
        (("--topic", "errors", "--shift-by", "1"), "errors-0 has no committed offset"),
    ],
)
async def test_reset_offsets_names_the_missing_topic_or_partition(
    cluster: LocalCluster, arguments: tuple[str, ...], problem: str
) -> None:
    async with Client(cluster.bootstrap) as client:
        if "errors" not in await client.list_topics():
            await create_topic(cluster, "errors", PARTITIONS)
    done = await groups(cluster, "reset-offsets", "errors-group", *arguments, code=1)
    assert problem in done.err


class Program:
    """A running command whose output lines are read as they are printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def read_until(self, words: str) -> None:
        """Read lines until one contains these words; keep all of them in `lines`."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            while True:
                line = (await self.process.stdout.readline()).decode()
                assert line, f"the command ended: {self.lines}"
                self.lines.append(line.rstrip("\n"))
                if words in line:
                    return

    async def interrupt(self) -> int:
        """Send SIGINT, read the remaining output, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            rest, _ = await self.process.communicate()
        self.lines += rest.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode

    def records(self) -> list[str]:
        return [line for line in self.lines if line and not line.startswith(("%", "waiting for "))]


@asynccontextmanager
async def started(cluster: LocalCluster, *arguments: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *(*NEW_INTERPRETER, *arguments, "--bootstrap", cluster.bootstrap),
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_consume_commands_in_one_group_share_the_partitions_and_commit_offsets(
    cluster: LocalCluster,
) -> None:
    await fill(cluster, "split")
    command = ("consume", "--group", "split-group", "split", "--print", "partition")
    async with started(cluster, *command) as one:
        await one.read_until("assigned split-0, split-1, split-2, split-3")
        async with started(cluster, *command) as two:
            await two.read_until("assigned")
            assert two.lines[-1].endswith("split-0, split-1") or two.lines[-1].endswith(
                "split-2, split-3"
            )
            async with Client(cluster.bootstrap) as client:
                for number in range(PARTITIONS):
                    await client.produce("split", [Record(value=b"last")], partition=number)
            for program in (one, two):
                await program.read_until("last")
                await program.read_until("last")
            assert await two.interrupt() == 130
        await one.read_until("assigned split-0, split-1, split-2, split-3")
        assert await one.interrupt() == 130
    printed = one.records() + two.records()
    assert len(printed) == len(set(printed)) == 11 * PARTITIONS
    assert [row["lag"] for row in await rows(cluster, "split-group")] == [0] * PARTITIONS
    again = await run(cluster, "consume", "--group", "split-group", "-e", "-q")
    assert (again.code, again.out, again.err) == (0, "", "")


async def test_second_consume_in_a_group_starts_where_the_limited_first_one_ended(
    cluster: LocalCluster,
) -> None:
    await fill(cluster, "counted")
    command = ("consume", "--group", "counted-group", "counted", "-q")
    first = await run(cluster, *command, "-n", "7")
    assert (first.code, first.out.count("\n"), first.err) == (0, 7, "")
    second = await run(cluster, *command, "--exit")
    assert (second.code, second.out.count("\n")) == (0, 10 * PARTITIONS - 7)
    assert not {*first.out.splitlines()} & {*second.out.splitlines()}
    unknown = await run(cluster, "consume", "--group", "counted-nobody")
    assert unknown.code == 1
    assert "group counted-nobody has read no topic yet: name a TOPIC" in unknown.err
    missing = await run(cluster, "consume", "--group", "counted-group", "never-made")
    assert missing.code == 1
    assert "never-made: no such topic" in missing.err


async def test_groups_describe_with_watch_shows_new_lag_until_it_is_interrupted(
    cluster: LocalCluster,
) -> None:
    await fill(cluster, "followed")
    await commit(cluster, "watched-group", "followed", 4)
    watch = ("groups", "describe", "watched-group", "--watch", "--interval", "0.1", "--json")
    async with started(cluster, *watch) as program:
        await program.read_until('"lag": 6')
        await commit(cluster, "watched-group", "followed", 9)
        await program.read_until('"lag": 1')
        assert await program.interrupt() == 130
    assert json.loads(program.lines[0])[0]["group"] == "watched-group"
