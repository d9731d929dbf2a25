"""Servers as processes of their own, for `scripts/object-storage` and `scripts/lakehouse-deaths`."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

ROOT: Final = Path(__file__).resolve().parents[1]
KINDS: Final = {"moto": "s3", "gcs": "gs", "azurite": "az", "hdfs": "hdfs"}
"""The kind of each server, as tests name it (`tests/support/spark/store_servers.py`)."""
_INSTALLED: Final = ROOT / ".store-servers"
"""Where `scripts/object-storage` installs servers that are no Python packages."""
_START_S: Final = 300
_STATE: Final = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
_HADOOP: Final = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:8020</value></property>
<property><name>hadoop.tmp.dir</name><value>{directory}</value></property>
<property><name>dfs.replication</name><value>1</value></property>
<property><name>dfs.namenode.rpc-address</name><value>127.0.0.1:8020</value></property>
<property><name>dfs.namenode.http-address</name><value>127.0.0.1:9870</value></property>
<property><name>dfs.datanode.hostname</name><value>localhost</value></property>
<property><name>dfs.datanode.address</name><value>127.0.0.1:0</value></property>
<property><name>dfs.datanode.http.address</name><value>127.0.0.1:0</value></property>
<property><name>dfs.datanode.ipc.address</name><value>127.0.0.1:0</value></property>
</configuration>
"""


@contextmanager
def running(server: str, directory: Path) -> Iterator[str]:
    """Run a server, whose files are below a directory, during the `with` body. Yield its URL."""
    with ExitStack() as stack:
        if server == "hdfs":
            url, commands = "http://127.0.0.1:9870", _hadoop(directory)
        else:
            url, commands = _command(server)
        for command in commands:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        if server == "hdfs":
            wait_for(
                f"{url}{_STATE}", process, b'"FSState" : "Operational"', b'"NumLiveDataNodes" : 1'
            )
        else:
            wait_for(url, process)
        yield url


def _command(server: str) -> tuple[str, Sequence[Sequence[str]]]:
    """Return the URL and the command of a server that is one process."""
    if server == "moto":
        return "http://127.0.0.1:5000", [
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "5000"]
        ]
    if server == "gcs":
        url = "http://127.0.0.1:4443"
        program = [str(_INSTALLED / "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1"]
        place = ["-port", "4443", "-backend", "memory", "-public-host", "127.0.0.1:4443"]
        return url, [[*program, *place, "-external-url", url]]
    program = ["node", str(_INSTALLED / "node_modules/.bin/azurite-blob"), "--disableTelemetry"]
    place = ["--blobHost", "127.0.0.1", "--blobPort", "10000", "--inMemoryPersistence"]
    return "http://127.0.0.1:10000", [[*program, *place, "--skipApiVersionCheck"]]


def _hadoop(directory: Path) -> Sequence[Sequence[str]]:
    """Format a name node in a directory. Return the commands of the name node and of a data node."""
    for name in ("hdfs", "datanode"):  # Hadoop looks for the pages of its web servers
        (directory / "conf/webapps" / name).mkdir(parents=True)
    for name in ("core-site.xml", "hdfs-site.xml"):
        (directory / "conf" / name).write_text(_HADOOP.format(directory=directory / "data"))
    java = ["java", "-Xmx256m", "-cp", f"{directory / 'conf'}:{_INSTALLED / 'hadoop'}/*"]
    names = [
        f"org.apache.hadoop.hdfs.server.{one}" for one in ("namenode.NameNode", "datanode.DataNode")
    ]
    subprocess.run([*java, names[0], "-format"], check=True, capture_output=True)
    return [[*java, name] for name in names]


def wait_for(url: str, process: subprocess.Popen[bytes], *texts: bytes) -> None:
    """Wait until a page has these texts; without texts, until a server answers. Raises OSError if it does not."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as page:
                found = page.read()
            if all(text in found for text in texts):
                return
        except HTTPError as error:
            error.close()
            if not texts:
                return
        except OSError:
            if process.poll() is not None:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} is not ready after {_START_S} s")
        time.sleep(0.2)
