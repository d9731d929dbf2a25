"""A file with the id and password of a broker's ZooKeeper session.

A broker that restarts after a crash uses the id and password to end its former session. Without the file, the
broker waits until that session expires. So it does with a file that was copied with its directory: the session may
be that of a broker that lives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from minikafka.base.errors import StorageFailed
from minikafka.base.names import parse_json
from minikafka.base.ports import Storage, ZooKeeper

logger = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper-session"
"""Name of the file in the first log directory."""
_SESSION_IDS: Final = range(-(2**63), 2**63)
"""The session ids that ZooKeeper's protocol can carry; 0 stands for no session."""
_PASSWORD_BYTES: Final = 16


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
                await close_session(*_session(former))
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


def _session(former: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return the id and password in the file's content. Raises ValueError, KeyError, TypeError if malformed."""
    session_id, password = former["id"], bytes.fromhex(former["password"])
    if type(session_id) is not int or session_id == 0 or session_id not in _SESSION_IDS:
        raise ValueError("the session id is invalid")
    if len(password) > _PASSWORD_BYTES:
        raise ValueError("the session password is invalid")
    return session_id, password
