"""A file with the id and password of a broker's ZooKeeper session.

A broker that restarts after a crash uses the id and password to end its former session. Without the file, the
broker waits until that session expires. So it does with a file that was copied with its directory: the session may
be that of a broker that lives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

from minikafka.base.errors import StorageFailed
from minikafka.base.names import parse_json
from minikafka.base.ports import Storage, ZooKeeper
from minikafka.base.zookeeper import SESSION_FILE, decode_session

logger = logging.getLogger(__name__)


class SessionFile:
    """The file with the id and password of the current session, in the given directory."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._path = f"{directory}/{SESSION_FILE}"

    async def end_former(self, close_session: Callable[[int, bytes], Awaitable[None]]) -> None:
        """End the session of this broker's former process, if the file exists, is readable, and is no copy."""
        try:
            if not self._storage.exists(self._path):
                return
            former = parse_json(self._storage.read(self._path))
            if former.get("place") in (None, self._storage.place(self._directory)):
                await close_session(*decode_session(former))
            else:
                logger.warning("%s was copied, so the session in it is not ended", self._path)
        except (ValueError, KeyError, TypeError, AttributeError, StorageFailed):
            logger.warning("%s is not readable, the former session will expire", self._path)

    def write(self, zookeeper: ZooKeeper) -> None:
        """Write the current session to the file. A disk failure is only logged, because the file is optional."""
        session: dict[str, object] = {
            "id": zookeeper.session_id,
            "password": zookeeper.session_password.hex(),
        }
        try:
            session["place"] = self._storage.place(self._directory)
            data = json.dumps(session).encode()
            self._storage.write_atomically(self._path, data, private=True)
        except StorageFailed as failure:
            logger.warning("the ZooKeeper session was not saved for the next start: %s", failure)
