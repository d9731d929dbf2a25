"""Background tasks: no exception is lost, and no task runs longer than its owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor


async def _forever() -> None:
    await asyncio.Event().wait()


async def _crash() -> None:
    raise RuntimeError("boom")


async def test_task_crash_is_logged_and_passed_to_the_crash_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crashes: list[tuple[str, str]] = []
    tasks = TaskRegistry(on_crash=lambda name, error: crashes.append((name, str(error))))
    with caplog.at_level(logging.ERROR):
        await tasks.spawn(_crash(), "crasher")
    assert crashes == [("crasher", "boom")]
    assert "task crasher crashed" in caplog.text


async def test_registry_lists_the_name_of_a_task_only_while_it_runs() -> None:
    tasks = TaskRegistry()
    ended = tasks.spawn(_forever(), "waiter")
    assert tasks.names() == ["waiter"]
    await tasks.close()
    assert tasks.names() == []
    with pytest.raises(asyncio.CancelledError):
        await ended


async def test_close_waits_until_the_last_task_has_cleaned_up() -> None:
    tasks = TaskRegistry()
    order: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            order.append("cleaned up")

    tasks.spawn(careful(), "careful")
    await asyncio.sleep(0)
    await tasks.close()
    order.append("closed")
    assert order == ["cleaned up", "closed"]


async def test_task_spawned_during_close_ends_too() -> None:
    tasks = TaskRegistry()

    async def parent() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.spawn(_forever(), "late")

    tasks.spawn(parent(), "parent")
    await asyncio.sleep(0)
    await tasks.close()
    assert tasks.names() == []


async def test_task_spawned_after_close_never_starts() -> None:
    tasks = TaskRegistry()
    await tasks.close()
    began: list[bool] = []

    async def work() -> None:
        began.append(True)

    with pytest.raises(asyncio.CancelledError):
        await tasks.spawn(work(), "too-late")
    assert began == []


async def test_task_cancelled_before_its_first_step_causes_no_warning() -> None:
    tasks = TaskRegistry()
    tasks.spawn(_forever(), "never-begun")
    await tasks.close()


async def test_task_may_close_its_own_registry() -> None:
    tasks = TaskRegistry()
    tasks.spawn(_forever(), "other")
    await tasks.spawn(tasks.close(), "closer")
    assert tasks.names() == []


async def test_executor_returns_results_and_errors_without_blocking_the_loop() -> None:
    executor = ThreadExecutor()
    assert await executor.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await executor.run(lambda: 1 // 0)
