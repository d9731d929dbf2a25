"""The wheel that is built of the sdist: installed outside of the checkout, and run as the image of containers does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import click
import pytest
from support.commands.base_install import ROOT, make_base_environment, without_java

from minikafka.tools.cli.main import commands

NOBODY = 65_534
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="only root with setpriv can run a process as another user",
    ),
]


class Installed:
    """An environment with the wheel and its dependencies, in a directory that every user can enter."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.wheel = build(directory / "build")
        self.python = make_base_environment(directory / "environment")
        packages = next((directory / "environment/lib").glob("python*/site-packages"))
        for link in packages.glob("minikafka*"):
            link.unlink()
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        offline = ["--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*pip, *offline, str(self.wheel)], check=True, timeout=120)
        self.own = directory / "own"
        self.own.mkdir()
        os.chown(self.own, NOBODY, NOBODY)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command of the environment as the user nobody, in a directory of its own."""
        user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        program = self.python.with_name(words[0])
        environment = {**without_java(self.python), "HOME": str(self.own)}
        return subprocess.Popen(
            ["/usr/bin/setpriv", *user, str(program), *words[1:]],
            cwd=self.own,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )


def build(directory: Path) -> Path:
    """Build an sdist, and of this the wheel, as `python -m build` does. Return the path of the wheel."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d"]
    options: dict[str, Any] = {"check": True, "capture_output": True, "timeout": 120}
    subprocess.run([*hatchling, str(directory), "-t", "sdist"], cwd=ROOT, **options)
    [sdist] = directory.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", str(sdist)], cwd=directory, **options)
    source = directory / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*hatchling, str(directory), "-t", "wheel"], cwd=source, **options)
    [wheel] = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="minikafka-wheel-") as directory:
        yield Installed(Path(directory))


def test_wheel_has_all_files_of_the_package_and_its_metadata(installed: Installed) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "minikafka"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(installed.wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        fields = message_from_bytes(archive.read(metadata))
    made = {name for name in names if ".dist-info/" not in name}
    renamed = {"minikafka/spark/autoload.py": "pyspark_minikafka.py"}  # Spark looks for this name
    assert made == {renamed.get(name, name) for name in tracked.stdout.split()}
    assert metadata.replace("METADATA", "licenses/LICENSE") in names
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.11"


def test_every_command_of_the_wheel_prints_its_help(installed: Installed) -> None:
    code = (
        "import click, minikafka\n"
        "from minikafka.tools.cli.lazy import import_lazily\n"
        "import_lazily()\n"
        "from minikafka.tools.cli.main import commands\n"
        "def show(group, parent):\n"
        "    context = click.Context(group, parent=parent)\n"
        "    for name in group.list_commands(context):\n"
        "        command = group.get_command(context, name)\n"
        "        command.get_help(click.Context(command, parent=context, info_name=name))\n"
        "        print(name)\n"
        "        if isinstance(command, click.Group): show(command, context)\n"
        "show(commands, None)\n"
        "print(minikafka.__file__)\n"
    )
    process = installed.start("python", "-c", code)
    *names, file = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    assert isinstance(commands, click.Group)
    assert set(commands.list_commands(click.Context(commands))) <= set(names)
    assert Path(file).is_relative_to(installed.directory)


def test_command_of_the_image_runs_and_stops_as_a_user_without_rights(
    installed: Installed,
) -> None:
    dockerfile = installed.start("minikafka", "generate", "dockerfile").communicate(timeout=60)[0]
    rows = dict(line.split(" ", 1) for line in dockerfile.splitlines() if " " in line)
    assert installed.wheel.name in dockerfile
    zookeeper = installed.start("minikafka", "zookeeper", "--data", "zookeeper", "--port", "0")
    try:
        assert zookeeper.stdout is not None
        address = zookeeper.stdout.readline().split()[3].rstrip(":")
        config = installed.own / "broker.toml"
        config.write_text(
            f'[broker]\nbroker.id = 1\nzookeeper.connect = "{address}"\nlog.dirs = "broker"\n'
            'minikafka.cluster.secret = "0123456789abcdef"\nlisteners = "PLAINTEXT://127.0.0.1:0"\n'
        )
        command = [*json.loads(rows["ENTRYPOINT"]), *json.loads(rows["CMD"])]
        broker = installed.start(*command[:-1], str(config))
        assert broker.stdout is not None
        lines = iter(broker.stdout.readline, "")
        assert any(line.startswith("broker 1 serves on ") for line in lines)
        broker.send_signal(signal.Signals[rows["STOPSIGNAL"]])
        assert broker.communicate(timeout=60)[0].endswith("broker 1 has stopped\n")
        assert broker.returncode == 0
        assert (installed.own / "broker").stat().st_uid == NOBODY
    finally:
        zookeeper.terminate()
        zookeeper.communicate(timeout=60)
