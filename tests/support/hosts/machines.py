"""Machines of one network: hosts with a name, a disk and processes of their own, on which commands run as printed.

A machine is a host (`namespaces.py`) whose first process has its own process ids, mounts and host name. `/etc`,
`/var/lib` and `/run` are its own, everything else is that of this machine. Three programs stand for what this machine
lacks: `systemctl` (`service_manager.py`), `zkServer.sh`, which runs Apache ZooKeeper's jars, and `scp`. `minikafka` is
forked instead of started anew (`forked_command.py`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from support.commands.fork_server import LONGEST, STREAMS
from support.commands.forks import BROKER, COMMANDS, ENVIRONMENT, fork_server_of
from support.hosts.namespaces import Hosts, hosts, needs_hosts

from minikafka.base.errors import ConfigError
from minikafka.zookeeper.processes.apache import find_jars, find_java

OWN = ("etc", "var/lib", "run")
"""The directories of a machine that are its own."""
DOMAIN = "example.com"
"""Each machine has a name with this domain too, for clients from outside."""
TIMEOUT = 120
_TOOLS = ("unshare", "nsenter", "setpriv", "mount", "hostname")
_BOOT = """
set -e
for own in {own}; do mount --bind {root}/$own /$own; done
hostname {name}
ip link set lo up
trap '' CHLD  # the kernel removes processes that end
echo up
exec sleep infinity
"""
_ZK_SERVER = """#!/bin/bash
# zkServer.sh start|stop|restart CONFIG, as Apache ZooKeeper's
set -e
data=$(sed -n s/^dataDir=//p "$2")
pid=$data/zookeeper_server.pid
case $1 in stop|restart)
    kill "$(cat "$pid")"
    while [ -d "/proc/$(cat "$pid")" ]; do sleep 0.05; done
    rm "$pid" ;;
esac
case $1 in start|restart)
    setsid {java} $SERVER_JVMFLAGS -Dzookeeper.admin.enableServer=false -cp {jars} \\
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$2" < /dev/null >> "$data/zookeeper.out" 2>&1 &
    echo $! > "$pid" ;;
esac
"""
_FLAGS = "-Xms16m -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Dslf4j.internal.verbosity=ERROR"
_SCP = """#!/bin/bash
# scp [-p] FILE... HOST:PATH
set -e
[ "$1" = -p ] && shift
to=${{@: -1}}
cp -p "${{@:1:$#-1}}" "{root}/${{to%%:*}}/${{to#*:}}"
"""
_PROGRAM = """#!/bin/bash
exec {python} -I -S {program} "$@"
"""
_PYTHON_PROGRAMS = {"systemctl": "service_manager.py", "minikafka": "forked_command.py"}


def _why_not() -> str:
    """Return why this machine cannot run others, "" if it can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)}"
    probe = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "needs the right to mount"
    try:
        find_java(), find_jars()
    except ConfigError as error:
        return str(error)
    return ""


needs_machines = [needs_hosts, pytest.mark.skipif(bool(_why_not()), reason=_why_not())]


class Done(NamedTuple):
    """A command that has ended: its exit code and output."""

    code: int
    out: str
    err: str


class Machine:
    """One machine. Its disk is a directory, and it may be on or off."""

    def __init__(self, on: Hosts, number: int, name: str, directory: Path) -> None:
        self.name = name
        self.root = directory / "disks" / name
        self._hosts = on
        self._number = number
        self._directory = directory
        self._shell: subprocess.Popen[str] | None = None
        self._first = 0

    def install(self, names: str) -> None:
        """Give the machine an empty disk. `names`: the content of /etc/hosts."""
        shutil.rmtree(self.root, ignore_errors=True)
        for own in OWN:
            (self.root / own).mkdir(parents=True)
        subprocess.run(["cp", "-a", "/etc", str(self.root)], check=True)
        (self.root / "etc/hosts").write_text(names)
        (self.root / "var/lib/admin").mkdir()

    def boot(self) -> None:
        """Start the machine, connected to the network."""
        self._hosts.plug(self._number, plugged=True)
        script = _BOOT.format(own=" ".join(OWN), root=shlex.quote(str(self.root)), name=self.name)
        unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", *unshare, "bash", "-c", script]
        self._shell = subprocess.Popen(
            self._hosts.command(self._number, *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._shell.stdout is not None
        with self._shell.stdout as said:
            assert said.readline() == "up\n"
        pid = self._shell.pid
        self._first = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def cut_power(self, *, silent: bool = False) -> None:
        """End all processes at once. `silent`: the other machines get no answer from then on, not even a refusal."""
        if self._shell is None:
            return
        if silent:
            self._hosts.plug(self._number, plugged=False)
        os.kill(self._first, signal.SIGKILL)
        self._shell.wait()
        self._shell = None
        self._hosts.plug(self._number, plugged=False)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command of the shell in the home directory of the administrator."""
        namespaces = ["--mount", "--uts", "--pid", "--net"]
        home = "/var/lib/admin"
        environment = {
            **ENVIRONMENT,
            "SERVER_JVMFLAGS": _flags(),
            "HOME": home,
            "PATH": f"{self._directory}/programs:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "FORKS": str(self._directory / "forks"),
            "MACHINE": str(self._first),
        }
        enter = ["nsenter", "--target", str(self._first), *namespaces, f"--wdns={home}"]
        return subprocess.Popen(
            [*enter, "bash", "-e", "-o", "pipefail", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, command: str) -> Done:
        """Run a command of the shell until it ends."""
        return finish(self.start(command))


def finish(process: subprocess.Popen[str]) -> Done:
    """Wait for the end of a command."""
    out, err = process.communicate(timeout=TIMEOUT)
    return Done(process.returncode, out, err)


def _flags() -> str:
    return f"{_FLAGS} {os.environ.get('SERVER_JVMFLAGS', '')}"


class Forks:
    """Passes the requests of `forked_command.py` to the fork servers."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    def _pass(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                message, streams, *_ = socket.recv_fds(connection, LONGEST, STREAMS)
                kind = BROKER if json.loads(message)["arguments"][:1] == [BROKER] else COMMANDS
                to = fork_server_of(kind).requests
                socket.send_fds(to, [message], [*streams, connection.fileno()])
            for stream in streams:
                os.close(stream)

    def close(self) -> None:
        """Pass no more requests."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@contextmanager
def machines(names: Sequence[str], directory: Path) -> Iterator[dict[str, Machine]]:
    """Install and boot machines, which know each other's names."""
    with hosts(len(names)) as found:
        rows = zip(found.numbers, names, strict=True)
        known = "".join(f"{found.address(n)} {name} {name}.{DOMAIN}\n" for n, name in rows)
        rows = zip(found.numbers, names, strict=True)
        made = {name: Machine(found, number, name, directory) for number, name in rows}
        _write_programs(directory)
        fork_server_of(BROKER)  # a process that starts in a thread ends with it
        fork_server_of(COMMANDS)
        forks = Forks(directory / "forks")
        try:
            for machine in made.values():
                machine.install(f"127.0.0.1 localhost\n{known}")
                machine.boot()
            yield made
        finally:
            for machine in made.values():
                machine.cut_power()
            forks.close()


def _write_programs(directory: Path) -> None:
    programs = directory / "programs"
    programs.mkdir()
    texts = {
        "zkServer.sh": _ZK_SERVER.format(java=find_java(), jars=":".join(find_jars())),
        "scp": _SCP.format(root=directory / "disks"),
    }
    for name, file in _PYTHON_PROGRAMS.items():
        program = Path(__file__).with_name(file)
        texts[name] = _PROGRAM.format(python=sys.executable, program=program)
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
