"""The lock of a directory on a store: a file that its holder writes again and again.

The lock only saves a second writer the work: what keeps two writers apart is the log of decisions (`fenced_log`). A
holder that was killed leaves the file. A new writer takes it over when it has not changed for `EXPIRY_S`, or at once
if the holder was a process of the same machine that has ended.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import LOCK, DirectoryBusy
from minikafka.spark.storage.store import FileStore, StorageError

RENEWAL_S: Final = 5.0
EXPIRY_S: Final = 20
"""Seconds after which a lock that was not renewed is free. The holder tries to renew it three times before."""


class _Lease:
    def __init__(self, store: FileStore, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._run = os.urandom(6).hex()
        self._renewals = 0
        self._released = threading.Event()

    def acquire(self) -> None:
        if self._store.create(LOCK, self._content()):
            if self._store.create(LOCK, b""):
                raise ConfigError(
                    f"{self._store.url}: the store ignores the condition of a write (If-None-Match: *), so two"
                    f" writers could damage the {self._kind}: use a store that has conditional writes"
                )
            return
        held = self._store.read(LOCK)
        if held is not None and not _has_ended(held):
            self._wait_for_expiry(held)
        self._store.write(LOCK, self._content())

    def _wait_for_expiry(self, held: bytes) -> None:
        for _ in range(EXPIRY_S):
            self._released.wait(1.0)
            now = self._store.read(LOCK)
            if now is None:
                return
            if now != held:
                found = _facts(now)
                raise DirectoryBusy(
                    f"process {found.get('pid', 'unknown')} on {found.get('host', 'an unknown machine')} writes"
                    f" the {self._kind} {self._store.url}: wait for it, or end it"
                )

    def renew(self) -> None:
        """Renew the lock until it is released, or belongs to another process."""
        while not self._released.wait(RENEWAL_S):
            with suppress(StorageError):  # the next renewal may succeed
                if not self._is_mine():
                    return
                self._renewals += 1
                self._store.write(LOCK, self._content())

    def release(self) -> None:
        self._released.set()

    def remove(self) -> None:
        with suppress(StorageError):  # without its file, the next writer waits for the expiry
            if self._is_mine():
                self._store.delete([LOCK])

    def _is_mine(self) -> bool:
        return _facts(self._store.read(LOCK) or b"{}").get("run") == self._run

    def _content(self) -> bytes:
        facts = {"run": self._run, "renewals": self._renewals, **_process()}
        return json.dumps(facts).encode()


@contextmanager
def held(store: FileStore, kind: str) -> Iterator[None]:
    """Hold the lock of a directory during the `with` body.

    Raises `DirectoryBusy` if a process that lives holds it, and `ConfigError` if the store has no conditional writes.
    """
    lease = _Lease(store, kind)
    lease.acquire()
    thread = threading.Thread(target=lease.renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        lease.release()
        thread.join()
        lease.remove()


def _process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _facts(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _has_ended(lock: bytes) -> bool:
    """True if the holder of a lock was a process of this machine that no longer runs."""
    found = _facts(lock)
    if found.get("host") != socket.gethostname() or not isinstance(found.get("pid"), int):
        return False
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
