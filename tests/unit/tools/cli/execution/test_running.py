"""The time limit of commands, and the running and cancelling of commands."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.client import Client, retries
from minikafka.tools.cli.arguments.options import time_limit, timeout_option
from minikafka.tools.cli.execution.running import run, run_cancellable, run_with_client
from minikafka.tools.cli.main import commands

WITHOUT_LIMIT = {
    "broker",
    "check-kafka-data",
    "console",
    "fault-proxy",
    "generate compose",
    "generate dockerfile",
    "generate grafana",
    "generate logrotate",
    "generate prometheus-rules",
    "generate systemd",
    "init-secret",
    "kafka-home",
    "kafka-tool",
    "logs",
    "pipeline compact",
    "pipeline package",
    "pipeline to-connector",
    "snapshots list",
    "snapshots remove",
    "verdict",
    "zk export",
    "zk import",
    "zookeeper",
}
"""Commands that do not talk to a cluster, or limit each of their requests."""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield " ".join([*path, name]), command


def test_every_command_that_talks_to_a_cluster_has_a_timeout() -> None:
    assert isinstance(commands, click.Group)
    without = {
        name
        for name, command in leaves(commands)
        if not any("--timeout" in parameter.opts for parameter in command.params)
    }
    assert without == WITHOUT_LIMIT


@click.command()
@timeout_option
def waits() -> None:
    run(asyncio.sleep(600), late="it did not happen")


@click.command()
@timeout_option
def prints() -> None:
    click.echo(time_limit())


def test_command_fails_when_its_time_limit_has_passed() -> None:
    done = CliRunner().invoke(waits, ["--timeout", "0.01"])
    assert isinstance(done.exception, MinikafkaError)
    assert str(done.exception) == "it did not happen within 0.01 s (--timeout)"
    assert CliRunner().invoke(prints, ["--timeout", "5"]).output == "5.0\n"
    assert CliRunner().invoke(prints).output == "\n"
    assert CliRunner().invoke(prints, ["--timeout", "0"]).exit_code == 2


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_error_names_the_brokers_that_did_not_answer_in_time(silent: str) -> None:
    async def work(client: Client) -> None:
        await client.list_topics()

    with pytest.raises(MinikafkaError) as caught:
        run_with_client(work, silent, limit=0.05)
    assert str(caught.value) == f"no complete answer from {silent} within 0.05 s (--timeout)"


def test_command_time_limit_replaces_the_default_timeouts_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, int]] = []

    class Recorded(Client):
        def __init__(self, servers: str, **limits: int) -> None:
            super().__init__(servers)
            made.append(limits)

    async def work(client: Client) -> None: ...

    monkeypatch.setattr("minikafka.client.Client", Recorded)
    run_with_client(work, "h:1")
    run_with_client(work, "h:1", limit=300)
    assert made == [{}, {"api_timeout_ms": 300_000, "delivery_timeout_ms": 300_000}]


def test_timeout_error_raised_by_the_work_of_a_command_keeps_its_message() -> None:
    async def work() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        run(work(), limit=60)


def test_command_fails_soon_when_bootstrap_servers_refuse_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "UNREACHABLE_MS", 300)

    async def work(client: Client) -> None:
        await client.admin.describe()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(KafkaError, match=f"no broker answers at {address}"):
            run_with_client(work, address, limit=30)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("on_ctrl_c", [signal.SIG_IGN, signal.default_int_handler])
def test_sigterm_lets_background_tasks_run_until_the_command_has_cleaned_up(
    on_ctrl_c: signal.Handlers,
) -> None:
    signal.signal(signal.SIGINT, on_ctrl_c)
    helper_ran: list[bool] = []

    async def helper(needed: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await needed.wait()

    async def work() -> None:
        needed = asyncio.Event()
        helping = asyncio.create_task(helper(needed))
        try:
            await asyncio.Event().wait()
        finally:
            needed.set()
            await asyncio.wait([helping])
            helper_ran.append(helping.exception() is None)

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work())
    assert helper_ran == [True]
    assert signal.getsignal(signal.SIGINT) is on_ctrl_c


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_does_not_cancel_a_future_in_the_middle_of_a_callback(number: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    errors: list[dict[str, object]] = []

    def answer(question: asyncio.Future[None]) -> None:
        if not question.done():
            os.kill(os.getpid(), number)
            question.set_result(None)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        question = loop.create_future()
        loop.call_soon(answer, question)
        await question
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work())
    assert errors == []


@pytest.mark.usefixtures("handlers")
def test_signal_that_another_thread_receives_cancels_a_command_that_waits() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = Path(f"/proc/self/task/{threading.get_native_id()}/wchan")
    late: list[bool] = []

    def send() -> None:
        while not late and "epoll" not in waiting.read_text():
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    async def work() -> None:
        asyncio.get_running_loop().call_later(5, late.append, True)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            await asyncio.Event().wait()
        finally:
            sender.join()

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work())
    assert late == []


@pytest.mark.usefixtures("handlers")
def test_second_signal_ends_a_command_that_hangs_while_it_cleans_up() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work())


@pytest.mark.usefixtures("handlers")
def test_signal_before_the_first_step_of_a_command_cancels_it_where_it_first_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reached: list[str] = []

    async def work() -> None:
        reached.append("begin")
        await asyncio.sleep(0)
        reached.append("end")

    def interrupted(main: Coroutine[Any, Any, None]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        run_loop(main)

    run_loop = asyncio.run
    monkeypatch.setattr(asyncio, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_cancellable(work())
    assert reached == ["begin"]
