"""A bucket on a server of objects, and a proxy that fails and delays requests.

The server is moto's, of S3, which runs while the tests do. MINIKAFKA_STORE names another one as `KIND=URL`:

    s3=http://127.0.0.1:9000       a server of S3
    gs=http://127.0.0.1:4443       fake-gcs-server
    az=http://127.0.0.1:10000      Azurite
    hdfs=http://127.0.0.1:9870     the web address of a name node, which serves clients at port 8020

`scripts/object-storage` starts each of them.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from http.server import BaseHTTPRequestHandler
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs
from support.spark.request_server import RequestServer, body_of, respond
from support.spark.store_translators import AzureTranslator, GoogleTranslator

VARIABLE: Final = "MINIKAFKA_STORE"
BUCKET: Final = "minikafka-tests"
_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key of every Azurite, which is published."""
_ACCOUNT: Final = "devstoreaccount1"
_S3_NAMES: Final = ("endpoint", "access-key-id", "secret-access-key", "region")


class Server(NamedTuple):
    """A server of objects, by its kind and its URL: see the module."""

    kind: str
    endpoint: str

    def url(self, name: str) -> str:
        """Return the URI of a name in the bucket."""
        if self.kind == "az":
            return f"abfs://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net/{name}"
        host = f"{urlsplit(self.endpoint).hostname}:8020/" if self.kind == "hdfs" else ""
        return f"{self.kind}://{host}{BUCKET}/{name}"

    def options(self, endpoint: str = "") -> dict[str, str]:
        """Return the options of a store on the server, or on a proxy at another address."""
        address = endpoint or self.endpoint
        if self.kind == "s3":
            names = ("access_key_id", "secret_access_key")
            return dict.fromkeys(names, "minikafka") | {"region": "us-east-1", "endpoint": address}
        if self.kind == "gs":
            account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            account |= {"gcs_base_url": address, "disable_oauth": True}
            return {"service_account_key": json.dumps(account), "allow_http": "true"}
        if self.kind == "az":
            place = {"endpoint": f"{address}/{_ACCOUNT}"}
            return place | {"account_name": _ACCOUNT, "account_key": _KEY}
        return {}

    def catalog(self, file: Path, endpoint: str = "") -> dict[str, str]:
        """Return pyiceberg's properties of a catalog in a SQLite file, whose tables are in the bucket."""
        given = self.options(endpoint)
        found = {"type": "sql", "uri": f"sqlite:///{file}"}
        if self.kind == "s3":
            keys = {name: given[name.replace("-", "_")] for name in _S3_NAMES}
            return found | {f"s3.{name}": value for name, value in keys.items()}
        if self.kind == "gs":
            login = {
                "gcs.oauth2.token": "minikafka",
                "gcs.oauth2.token-expires-at": "4102444800000",
            }
            return found | login | {"gcs.service.host": endpoint or self.endpoint}
        place = urlsplit(endpoint or self.endpoint)
        keys = {"account-name": given["account_name"], "account-key": _KEY}
        for name in ("blob", "dfs"):
            keys |= {f"{name}-storage-authority": place.netloc, f"{name}-storage-scheme": "http"}
        found["py-io-impl"] = "minikafka.spark.lakehouse.iceberg_files.TableFiles"
        return found | {f"adls.{name}": value for name, value in keys.items()}

    def file_system(self) -> fs.FileSystem:
        """Return a client of the server that shares no code with the store. It has created the bucket."""
        return _client_with_bucket(*self)

    def keys(self, prefix: str) -> list[str]:
        """Return the names in the bucket below a prefix, without the prefix, sorted."""
        place = f"{BUCKET}/{prefix}".rstrip("/")
        wanted = fs.FileSelector(place, recursive=True, allow_not_found=True)
        found = self.file_system().get_file_info(wanted)
        return sorted(
            one.path.lstrip("/").removeprefix(f"{place}/")
            for one in found
            if one.type == fs.FileType.File
        )


@cache
def _client_with_bucket(kind: str, endpoint: str) -> fs.FileSystem:
    found = _client(kind, endpoint)
    found.create_dir(BUCKET)
    return found


def _client(kind: str, endpoint: str) -> fs.FileSystem:
    target = urlsplit(endpoint)
    address, scheme = target.netloc, target.scheme
    if kind == "s3":
        login: Any = {"access_key": "minikafka", "secret_key": "minikafka", "region": "us-east-1"}
        return fs.S3FileSystem(
            **login,
            endpoint_override=endpoint,
            allow_bucket_creation=True,
            connect_timeout=20,
            request_timeout=60,
        )
    if kind == "gs":
        return fs.GcsFileSystem(
            anonymous=True, scheme=scheme, endpoint_override=address, project_id="minikafka"
        )
    if kind == "az":
        return fs.AzureFileSystem(
            account_name=_ACCOUNT,
            account_key=_KEY,
            blob_storage_authority=address,
            blob_storage_scheme=scheme,
            dfs_storage_authority=address,
            dfs_storage_scheme=scheme,
        )
    from fsspec.implementations.webhdfs import WebHDFS

    web = WebHDFS(target.hostname, target.port, user="root", use_listings_cache=False)
    return fs.SubTreeFileSystem("/", fs.PyFileSystem(fs.FSSpecHandler(web)))


@contextmanager
def running() -> Iterator[Server]:
    """Yield the server that the environment names, or a server of S3 that runs during the `with` body."""
    if given := os.environ.get(VARIABLE):
        kind, _, endpoint = given.partition("=")
        make = {"gs": GoogleTranslator, "az": AzureTranslator}.get(kind)
        with translated(make, endpoint) if make else nullcontext(endpoint) as address:
            yield Server(kind, address)
        return
    with moto() as endpoint:
        yield Server("s3", endpoint)


@contextmanager
def translated(
    make: Callable[[str], AzureTranslator | GoogleTranslator], endpoint: str
) -> Iterator[str]:
    """Run a translator for a server during the `with` body. Yield its URL."""
    translator = ServerProcess(make, endpoint)
    try:
        yield translator.endpoint
    finally:
        translator.close()


@contextmanager
def moto() -> Iterator[str]:
    """Run a server of S3 during the `with` body. Yield its URL."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next(word for line in lines for word in line.split() if word.startswith("http:"))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield url
        finally:
            process.kill()


class FailingProxy:
    """A proxy that fails every request whose number is a multiple of `every`, in three ways in turn.

    The server is busy (503); the connection ends before the request was sent on, or after the server has carried it
    out. `delay_s`: seconds before each response.
    """

    def __init__(self, server: Server, every: int = 10, delay_s: float = 0.0) -> None:
        self._target = server
        self._every = every
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.requests = 0
        self.failed = 0
        self._http = RequestServer(self.serve)
        self.endpoint = self._http.endpoint

    def _way(self) -> int:
        """Return how to fail this request: 0 to 2; -1 to serve it."""
        with self._lock:
            self.requests += 1
            if self.requests % self._every:
                return -1
            self.failed += 1
            return self.failed % 3

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Serve one request, or fail it."""
        body = body_of(request)
        way = self._way()
        if way == 0:
            respond(request, 503)
            return
        if way == 1:
            request.close_connection = True
            return
        response, data = self._forward(request, body)
        threading.Event().wait(self._delay_s)
        if way == 2:
            request.close_connection = True
            return
        dropped = ("connection", "date", "server", "transfer-encoding")
        headers = [pair for pair in response.getheaders() if pair[0].lower() not in dropped]
        respond(request, response.status, data, headers)

    def _forward(self, request, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        target = urlsplit(self._target.endpoint)
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            left_out = ("transfer-encoding", "expect")
            headers = {
                name: value
                for name, value in request.headers.items()
                if name.lower() not in left_out
            }
            connection.request(request.command, request.path, body, headers)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the proxy."""
        self._http.close()


class ServerProcess:
    """A server in a process of its own, for clients that block the threads of this one (deltalake)."""

    def __init__(
        self, make: Callable[..., FailingProxy | AzureTranslator | GoogleTranslator], *given: object
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, make, given), daemon=True)
        self._process.start()
        self.endpoint: str = self._end.recv()

    def close(self) -> int:
        """Stop the server. Return the number of requests that it has failed on purpose."""
        self._end.send("stop")
        failed: int = self._end.recv()
        self._process.join()
        return failed


def _serve(
    end: Connection,
    make: Callable[..., FailingProxy | AzureTranslator | GoogleTranslator],
    given: Sequence[object],
) -> None:
    server = make(*given)
    end.send(server.endpoint)
    end.recv()
    server.close()
    end.send(server.failed)
