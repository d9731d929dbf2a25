"""Modules that the command line imports at the top of a file run when they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from minikafka.tools.cli.lazy import LazyModule, import_at_once, import_lazily
import_lazily()
"""


def printed_by(program: str) -> list[str]:
    """Run a program in a new process, in which imports are lazy; return its lines."""
    command = [sys.executable, "-c", START + program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_module_runs_at_the_first_access_to_one_of_its_names() -> None:
    program = """
import minikafka.client as clients
print(type(clients) is LazyModule, clients.Client.__name__, type(clients) is LazyModule)
"""
    assert printed_by(program) == ["True Client False"]


def test_import_of_a_name_runs_the_module_at_once() -> None:
    program = """
from minikafka.client import Client
print(Client.__name__, type(sys.modules["minikafka.client"]) is LazyModule)
"""
    assert printed_by(program) == ["Client False"]


def test_module_in_a_package_runs_after_its_package() -> None:
    program = """
import minikafka.client.administration.results as results
print(type(sys.modules["minikafka.client"]) is LazyModule)
results.Outcome
print(type(sys.modules["minikafka.client"]) is LazyModule)
import asyncio.events
print(type(sys.modules["asyncio"]) is LazyModule)
"""
    assert printed_by(program) == ["True", "False", "False"]


def test_unknown_name_of_a_lazy_module_is_an_error() -> None:
    program = """
import minikafka.client as clients
try:
    clients.nothing
except AttributeError as error:
    print(error)
"""
    assert printed_by(program) == ["module 'minikafka.client' has no attribute 'nothing'"]


def test_name_that_a_module_does_not_have_yet_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich/__init__.py").touch()
    (tmp_path / "rich/live.py").write_text("import rich.text as text\ntext.later\nnow = 1\n")
    (tmp_path / "rich/text.py").write_text("import rich.live as live\nlive.now\nlater = 2\n")
    program = f"""
sys.path.insert(0, {str(tmp_path)!r})
import rich.live as live
try:
    live.now
except AttributeError as error:
    print(error)
"""
    assert printed_by(program) == ["module 'rich.live' is being loaded and has no 'now' yet"]


def test_module_that_failed_runs_again_at_the_next_access(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich/__init__.py").touch()
    (tmp_path / "rich/text.py").write_text("import sys\nsys.tries.append(1)\n1 / 0\n")
    program = f"""
sys.path.insert(0, {str(tmp_path)!r})
sys.tries = []
import rich.text as text
for _ in range(2):
    try:
        text.Text
    except ZeroDivisionError:
        print(sys.tries)
"""
    assert printed_by(program) == ["[1]", "[1, 1]"]


def test_threads_that_use_a_module_wait_until_it_has_run(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich/__init__.py").touch()
    (tmp_path / "rich/text.py").write_text("import sys\nsys.wait_in_module()\nname = 1\n")
    program = f"""
sys.path.insert(0, {str(tmp_path)!r})
import threading
began, may_end, tries = threading.Event(), threading.Event(), []
def wait():
    tries.append(1)
    began.set()
    may_end.wait()
sys.wait_in_module = wait
import rich.text as text
found = []
def use():
    found.append(text.name)
threads = [threading.Thread(target=use) for _ in range(3)]
threads[0].start()
began.wait()
threads[1].start()
threads[2].start()
may_end.set()
for thread in threads:
    thread.join()
print(found, tries)
"""
    assert printed_by(program) == ["[1, 1, 1] [1]"]


@pytest.mark.parametrize("name", ["minikafka.client", "asyncio"])
def test_server_imports_at_once(name: str) -> None:
    program = f"""
import_at_once()
import {name}
print(type(sys.modules[{name!r}]) is LazyModule)
"""
    assert printed_by(program) == ["False"]
