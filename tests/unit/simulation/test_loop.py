"""The schedule, the virtual time and the simulated processes of `SeededLoop`."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.simulation.loop import NothingReady, Process, run_seeded, running_loop, start_in

HOUR = 3_600


async def steps_of_two_processes() -> str:
    done: list[str] = []

    async def work(name: str) -> None:
        for _ in range(20):
            done.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(start_in(Process(name), work(name)) for name in "ab"))
    return "".join(done)


def test_same_seed_gives_the_same_order_of_steps():
    assert run_seeded(1, steps_of_two_processes()) == run_seeded(1, steps_of_two_processes())


def test_other_seeds_give_other_orders_of_steps():
    assert len({run_seeded(seed, steps_of_two_processes()) for seed in range(5)}) == 5


def test_time_jumps_to_the_next_timer():
    async def scenario() -> float:
        await asyncio.sleep(HOUR)
        return running_loop().time()

    assert HOUR <= run_seeded(1, scenario()) < HOUR + 1


def test_killed_process_runs_no_further_line():
    done: list[str] = []

    async def victim() -> None:
        try:
            await asyncio.sleep(1)
            done.append("after its death")
        except asyncio.CancelledError:
            done.append("cancelled")
            raise

    async def scenario() -> list[str]:
        process = Process("victim")
        start_in(process, victim())
        await asyncio.sleep(0.5)
        running_loop().kill(process)
        await asyncio.sleep(HOUR)
        return list(done)

    assert run_seeded(1, scenario()) == []


def test_paused_process_continues_after_resume():
    async def scenario() -> tuple[bool, bool]:
        process = Process("paused")
        task = start_in(process, asyncio.sleep(1))
        running_loop().pause(process)
        await asyncio.sleep(HOUR)
        was_done = task.done()
        running_loop().resume(process)
        await task
        return was_done, task.done()

    assert run_seeded(1, scenario()) == (False, True)


def test_scenario_that_waits_for_nothing_ends_with_an_error():
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingReady):
        run_seeded(1, scenario())


def test_exception_that_nobody_handles_fails_the_run():
    def fail() -> None:
        raise RuntimeError("nobody handles this")

    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="nobody handles this"):
        run_seeded(7, scenario())
