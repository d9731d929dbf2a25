"""Planning and checks of a cluster before anything starts: ids, ports and keys."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import minikafka
from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.zookeeper import EXTERNAL
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster, running
from minikafka.tools.cluster.directory import ClusterRecord
from minikafka.tools.cluster.launch import launcher
from minikafka.tools.cluster.launch.launcher import Launcher
from minikafka.tools.cluster.lifecycle import started_clusters
from minikafka.tools.cluster.local import BlockingCluster
from minikafka.tools.cluster.processes import ProcessId, identify


def write_plan(launcher: Launcher) -> ClusterRecord:
    """Make the plan of a start, write it to the cluster's directory, and return it."""
    planned = launcher.plan(launcher.directory.read())
    launcher.write(planned)
    return planned.record


def planned(cluster: LocalCluster) -> ClusterRecord:
    """Make and store the plan of `cluster.start()` without starting any process; return the stored plan."""
    record = write_plan(cluster._launcher())
    assert cluster.record == record
    return record


def test_next_start_keeps_the_recorded_broker_ids_and_ports(tmp_path: Path) -> None:
    first = planned(LocalCluster(3, data=tmp_path))
    assert [broker.id for broker in first.brokers] == [1, 2, 3]
    again = planned(LocalCluster(data=tmp_path, config=ClusterConfig(brokers=5, port=9092)))
    assert replace(again, settings=first.settings) == first


@pytest.mark.key("cluster.brokers", "cluster.port")
def test_first_port_passed_to_a_later_start_replaces_the_recorded_ports(tmp_path: Path) -> None:
    first = planned(LocalCluster(data=tmp_path, config=ClusterConfig(brokers=2, port=19000)))
    assert first.bootstrap == "127.0.0.1:19000,127.0.0.1:19001"
    moved = planned(LocalCluster(data=tmp_path, port=19500))
    assert moved.bootstrap == "127.0.0.1:19500,127.0.0.1:19501"
    assert [b.control_port for b in moved.brokers] == [b.control_port for b in first.brokers]


def test_added_broker_leaves_the_records_of_existing_brokers_unchanged(tmp_path: Path) -> None:
    two = planned(LocalCluster(2, data=tmp_path))
    three = planned(LocalCluster(3, data=tmp_path))
    assert three.brokers[:2] == two.brokers


def test_each_broker_config_file_has_the_keys_of_its_broker_and_the_cluster_secret(
    tmp_path: Path,
) -> None:
    config = ClusterConfig.parse(
        '[broker]\nlog.segment.bytes = 1048576\n[broker.2]\nbroker.rack = "b"\n'
    )
    cluster = LocalCluster(2, data=tmp_path, config=config)
    record = planned(cluster)
    files = [BrokerConfig.parse(cluster.directory.broker_file(i).read_text()) for i in (1, 2)]
    assert [file.broker_id for file in files] == [1, 2]
    assert [file.broker_rack for file in files] == [None, "b"]
    assert {file.log_segment_bytes for file in files} == {1048576}
    assert {file.zookeeper_connect for file in files} == {record.zookeeper}
    assert len({file.minikafka_cluster_secret for file in files}) == 1
    for file, broker in zip(files, record.brokers, strict=True):
        assert file.endpoints.kafka[0].port == broker.port
        assert file.endpoints.control.port == broker.control_port


@pytest.mark.parametrize("key", ["broker.id", "listeners", "log.dirs", "zookeeper.connect"])
def test_config_keys_that_the_cluster_sets_for_each_broker_are_refused(
    tmp_path: Path, key: str
) -> None:
    cluster = LocalCluster(1, data=tmp_path, config={key: "1"})
    with pytest.raises(ConfigError, match=f"{key} is set by the cluster for each broker"):
        planned(cluster)


@pytest.mark.key("zookeeper.connect")
def test_cluster_record_marks_a_zookeeper_given_by_the_user_as_external(tmp_path: Path) -> None:
    record = planned(LocalCluster(1, data=tmp_path, zookeeper="host:2181/chroot"))
    assert (record.zookeeper, record.zookeeper_kind) == ("host:2181/chroot", EXTERNAL)
    assert not record.runs_zookeeper


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"brokers": 0}, "brokers must be from 1 to 1000, got 0"),
        ({"brokers": -1}, "brokers must be from 1 to 1000, got -1"),
        ({"brokers": 1001}, "brokers must be from 1 to 1000, got 1001"),
        ({"port": -1}, "port must be from 0 to 65535, got -1"),
        ({"port": 65_535}, "port must be at most 65533 with 3 brokers, got 65535"),
        (
            {"config": ClusterConfig(port=65_534)},
            "cluster.port must be at most 65533 with 3 brokers, got 65534",
        ),
        ({"config": {"zookeeper.session.timeout.ms": 0}}, "zookeeper.session.timeout.ms"),
        ({"config": {"replica.lag.time.max.ms": 1}}, "at most replica.lag.time.max.ms"),
        ({"zookeeper": "localhost:notaport"}, "zookeeper.connect cannot be"),
        (
            {"config": ClusterConfig(overrides={9: {"broker.rack": "b"}})},
            "[broker.9] is for a broker that the cluster does not have: its brokers are 1 to 3",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_start_with_an_invalid_argument_fails_before_anything_is_written(
    tmp_path: Path, cluster: dict[str, Any], expected: str
) -> None:
    data = tmp_path / "data"
    with pytest.raises(MinikafkaError, match=re.escape(expected)):
        await LocalCluster(**{"brokers": 3, "data": data, **cluster}).start()
    assert not data.exists()


@pytest.mark.parametrize("value", ["3", 2.5, True, [3]], ids=repr)
def test_typeerror_for_an_argument_that_is_not_a_whole_number_names_the_argument(
    value: Any,
) -> None:
    for name, rule in (
        ("brokers", "1 to 1000"),
        ("port", "0 to 65535"),
        ("metrics_port", "0 to 65535"),
    ):
        expected = f"{name} must be a whole number from {rule}, got {value!r}"
        with pytest.raises(TypeError, match=f"^{re.escape(expected)}$"):
            LocalCluster(**{name: value})


def test_empty_string_as_data_directory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^data must not be '': name a directory, or None for a"):
        LocalCluster(data="")


@pytest.mark.parametrize("argument", [{}, {"port": 65_535}])
async def test_local_cluster_errors_mention_no_commands_or_options_of_the_command_line(
    tmp_path: Path, argument: dict[str, int]
) -> None:
    cluster = LocalCluster(data=tmp_path / "data", **argument)  # type: ignore[arg-type]
    with pytest.raises(ClusterError) as caught:
        _ = await cluster.start() if argument else cluster.bootstrap
    assert "minikafka up" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_package_exports_clusters_their_errors_and_history() -> None:
    assert minikafka.ClusterError is ClusterError
    assert minikafka.LocalCluster is LocalCluster
    assert issubclass(minikafka.FaultMissed, ClusterError)
    assert set(minikafka.__all__) == {"ClusterError", "FaultMissed", "LocalCluster", "history"}


async def test_blocking_cluster_is_refused_in_a_thread_with_an_event_loop(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"use async with LocalCluster\(\)"):
        LocalCluster(1, data=tmp_path).__enter__()


async def test_method_of_a_blocking_cluster_is_awaited_in_a_coroutine(tmp_path: Path) -> None:
    planned(LocalCluster(1, data=tmp_path))
    call: Any = BlockingCluster(LocalCluster(1, data=tmp_path)).kill(1)
    with pytest.raises(ClusterError, match="broker 1 is not running"):
        await call


def test_blocking_cluster_refuses_calls_after_its_with_block_has_ended(tmp_path: Path) -> None:
    planned(LocalCluster(1, data=tmp_path))
    cluster = BlockingCluster(LocalCluster(1, data=tmp_path))
    cluster.close(None)
    with pytest.raises(ClusterError, match="stopped at the end of its with block"):
        cluster.kill(1)


def test_several_threads_call_methods_of_a_blocking_cluster_at_the_same_time(
    tmp_path: Path, sleeper: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SIGNAL_TIMEOUT_MS", 20)
    cluster = LocalCluster(1, data=tmp_path)
    record = planned(cluster)
    cluster.directory.write(record.with_broker(replace(record.broker(1), process=sleeper)))
    blocking = BlockingCluster(cluster)
    together = threading.Barrier(4)

    def pause_and_resume() -> None:
        together.wait(30)
        for _ in range(5):
            blocking.pause(1)
            blocking.resume(1)

    with ThreadPoolExecutor(together.parties) as pool:
        for call in [pool.submit(pause_and_resume) for _ in range(together.parties)]:
            call.result(30)


@pytest.mark.parametrize(
    ("data", "config", "problem"),
    [
        ("/proc/none", {}, "^/proc/none: No such file"),
        (None, {"no.key": 1}, r"^unknown key no\.key"),
    ],
)
async def test_with_block_of_a_cluster_that_cannot_start_raises_a_cluster_error(
    data: str | None, config: dict[str, object], problem: str
) -> None:
    with pytest.raises(ClusterError, match=problem):
        async with LocalCluster(1, data=data, config=config):
            raise AssertionError("not reached")


async def test_exception_in_the_with_block_gets_the_last_log_lines_of_each_broker(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(2, data=tmp_path)
    planned(cluster)
    text = "".join(f"line {i}\n" for i in range(99))
    cluster.directory.output("broker-1").write_text(text)
    error = RuntimeError("of the test")
    await cluster.__aexit__(RuntimeError, error, None)
    one, two = error.__notes__
    assert one.startswith(f"last lines of broker 1 ({tmp_path}/logs/broker-1.log):\n  line 84\n")
    assert one.endswith("\n  line 98")
    assert two.endswith("broker-2.log):\n  no output")
    failed = pytest.fail.Exception("of pytest")
    await cluster.__aexit__(type(failed), failed, None)
    assert len(failed.__notes__) == 2
    interrupted = KeyboardInterrupt()
    await cluster.__aexit__(KeyboardInterrupt, interrupted, None)
    assert not hasattr(interrupted, "__notes__")


async def test_refused_start_leaves_the_former_cluster_record_unchanged(tmp_path: Path) -> None:
    first = planned(LocalCluster(2, data=tmp_path))
    with pytest.raises(ClusterError, match=r"^port must be"):
        await LocalCluster(data=tmp_path, port=65_535).start()
    assert LocalCluster(data=tmp_path).record == first


def test_config_section_of_a_retired_broker_is_accepted(tmp_path: Path) -> None:
    config = ClusterConfig(brokers=3, port=0, overrides={3: {"broker.rack": "c"}})
    cluster = LocalCluster(2, data=tmp_path, config=config)
    cluster._launcher().check()
    LocalCluster(9, data=tmp_path, config=ClusterConfig(overrides={9: {}}))._launcher().check()


async def test_error_says_what_to_do_when_the_data_directory_is_a_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ClusterError, match=r"is not a directory: name another data directory$"):
            await LocalCluster(data=data).start()


def test_bootstrap_of_a_cluster_that_was_never_started_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no cluster in"):
        _ = LocalCluster(data=tmp_path).bootstrap


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    """Yield a process that only sleeps, for use as the process of a broker."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = identify(child.pid)
        assert process is not None
        yield process
        child.kill()


async def test_start_of_a_paused_broker_says_how_to_resume_it(
    tmp_path: Path, sleeper: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "DYING_MS", 20)
    cluster = LocalCluster(2, data=tmp_path)
    record = planned(cluster)
    cluster.directory.write(record.with_broker(replace(record.broker(2), process=sleeper)))
    with pytest.raises(ClusterError, match=r"^broker 2 is already running$"):
        await cluster.start(2)
    await cluster.pause(2)
    with pytest.raises(ClusterError, match=r"^broker 2 is paused \(SIGSTOP\), not down$") as caught:
        await cluster.start(2)
    assert caught.value.hint == "minikafka resume 2 lets it continue"
    await cluster.resume(2)


async def test_stop_before_start_removes_the_temporary_directory() -> None:
    cluster = LocalCluster(1)
    await cluster.stop()
    assert not await asyncio.to_thread(cluster.directory.path.exists)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def texts_in(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


async def test_failed_start_leaves_no_cluster_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "PORT_WAIT_MS", 20)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} of broker 1 is in use"):
            await LocalCluster(1, data=tmp_path, port=port).start()
    assert LocalCluster(data=tmp_path).directory.read() is None
    assert names_in(tmp_path) == ["lock"]


async def test_failed_start_leaves_the_files_of_the_former_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(LocalCluster(2, data=tmp_path))
    cluster = LocalCluster(3, data=tmp_path, port=0, config={"num.partitions": 7})
    before = texts_in(tmp_path)

    async def fail(launcher: Launcher, *_: object) -> None:
        write_plan(launcher)
        (tmp_path / "broker-3").mkdir()
        raise ClusterError("broker 3 ended")

    monkeypatch.setattr(LocalCluster, "_start", lambda cluster, *rest: fail(*rest))
    with pytest.raises(ClusterError, match="broker 3 ended"):
        await cluster.start()
    assert cluster.record == first
    assert texts_in(tmp_path) == before


async def test_failed_first_start_removes_the_data_that_it_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broker-2").mkdir()

    async def fail(launcher: Launcher, *_: object) -> None:
        write_plan(launcher)
        for name in ("zookeeper", "broker-1", "broker-1-ledger", "logs"):
            (tmp_path / name).mkdir()
        raise ClusterError("broker 1 ended")

    monkeypatch.setattr(LocalCluster, "_start", lambda cluster, *rest: fail(*rest))
    with pytest.raises(ClusterError, match="broker 1 ended"):
        await LocalCluster(2, data=tmp_path).start()
    assert names_in(tmp_path) == ["broker-2", "logs"]


async def test_failed_start_leaves_a_cluster_record_that_another_command_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(1, data=tmp_path)

    async def fail(launcher: Launcher, *_: object) -> None:
        record = write_plan(launcher)
        launcher.directory.write(replace(record, zookeeper="other:1"))
        raise ClusterError("broker 1 ended")

    monkeypatch.setattr(LocalCluster, "_start", lambda cluster, *rest: fail(*rest))
    with pytest.raises(ClusterError, match="broker 1 ended"):
        await cluster.start()
    assert cluster.record.zookeeper == "other:1"


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_topics_are_replicated_by_default_without_a_configuration_file(
    tmp_path: Path, brokers: int, replicas: int, in_sync: int
) -> None:
    cluster = LocalCluster(
        brokers, data=tmp_path, config=ClusterConfig(is_default=True, replicates_topics=True)
    )
    planned(cluster)
    file = BrokerConfig.parse(cluster.directory.broker_file(brokers).read_text())
    assert (file.default_replication_factor, file.min_insync_replicas) == (replicas, in_sync)
    planned(LocalCluster(data=tmp_path, config=ClusterConfig.parse("")))
    file = BrokerConfig.parse(cluster.directory.broker_file(brokers).read_text())
    assert (file.default_replication_factor, file.min_insync_replicas) == (replicas, in_sync)


def test_default_settings_suit_tests_and_are_overridden_by_config(tmp_path: Path) -> None:
    def settings(config: dict[str, object] | ClusterConfig) -> tuple[int, int, int]:
        cluster = LocalCluster(1, data=tmp_path, config=config)
        planned(cluster)
        file = BrokerConfig.parse(cluster.directory.broker_file(1).read_text())
        return (
            file.zookeeper_session_timeout_ms,
            file.group_initial_rebalance_delay_ms,
            file.offsets_topic_num_partitions,
        )

    assert settings({}) == (2_000, 0, 5)
    given: dict[str, object] = {
        "zookeeper.session.timeout.ms": 9_000,
        "group.initial.rebalance.delay.ms": 7,
        "offsets.topic.num.partitions": 8,
    }
    assert settings(given) == (9_000, 7, 8)
    assert settings(ClusterConfig()) == (18_000, 3_000, 50)


async def test_start_that_waits_for_the_end_of_the_cluster_finds_no_cluster() -> None:
    cluster = LocalCluster(1)
    planned(cluster)
    async with cluster.directory.locked(SystemClock()):
        late = asyncio.create_task(cluster.start(1))
        await asyncio.sleep(0)  # `late` waits for the lock
        cluster._end()
    with pytest.raises(ClusterError, match="there is no cluster in"):
        await late
    assert not await asyncio.to_thread(cluster.directory.path.exists)


def test_blocking_call_leaves_the_event_loop_of_its_thread_alone(tmp_path: Path) -> None:
    planned(LocalCluster(1, data=tmp_path))

    def call() -> bool:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        with pytest.raises(ClusterError, match="broker 1 is not running"):
            BlockingCluster(LocalCluster(1, data=tmp_path)).kill(1)
        loop.close()
        return asyncio.get_event_loop() is loop

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call).result()


async def test_cluster_that_did_not_start_is_not_among_the_started_ones() -> None:
    before = started_clusters()
    cluster = LocalCluster(1, config={"no.key": 1})
    with pytest.raises(ClusterError, match=r"no\.key"):
        await cluster.__aenter__()
    assert started_clusters() == before
    assert not await asyncio.to_thread(cluster.directory.path.exists)


async def test_logs_outlive_a_temporary_directory_after_a_failed_block() -> None:
    for fails in (False, True):
        cluster = LocalCluster(1)
        planned(cluster)
        log = cluster.directory.output("broker-1")
        log.write_text("line\n")
        error = RuntimeError("of the test") if fails else None
        await cluster.__aexit__(type(error) if error else None, error, None)
        assert await asyncio.to_thread(log.exists) == fails
    assert names_in(cluster.directory.path) == ["logs"]
    shutil.rmtree(cluster.directory.path)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_internal_topics_are_replicated_on_as_many_brokers_as_possible(
    tmp_path: Path, brokers: int, replicas: int, in_sync: int
) -> None:
    cluster = LocalCluster(brokers, data=tmp_path, config=ClusterConfig.parse(""))
    planned(cluster)
    file = BrokerConfig.parse(cluster.directory.broker_file(brokers).read_text())
    assert file.offsets_topic_replication_factor == replicas
    assert file.transaction_state_log_replication_factor == replicas
    assert file.transaction_state_log_min_isr == in_sync
    given = ClusterConfig.parse("[broker]\noffsets.topic.replication.factor = 1")
    planned(LocalCluster(data=tmp_path, config=given))
    file = BrokerConfig.parse(cluster.directory.broker_file(brokers).read_text())
    assert file.offsets_topic_replication_factor == 1


async def test_error_of_a_failed_first_start_contains_the_last_broker_log_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(launcher: Launcher, *_: object) -> None:
        write_plan(launcher)
        launcher.directory.output("broker-1").write_text("disk on fire\n")
        raise ClusterError("broker 1 ended")

    monkeypatch.setattr(LocalCluster, "_start", lambda cluster, *rest: fail(*rest))
    with pytest.raises(ClusterError, match="broker 1 ended") as caught:
        async with LocalCluster(1, data=tmp_path):
            raise AssertionError("not reached")
    assert "disk on fire" in caught.value.__notes__[0]
