"""Random requests of several sessions, for a comparison of two servers.

The names are few, so that most requests meet nodes, and each other's watches. Paths begin with the root of their
sequence, so that sequences do not disturb each other. The same seed gives the same requests.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from support.zookeeper import bytes as wire

SESSIONS = 3
REQUESTS = 60
_STAYS = 0.7
"""How often the next request comes from the same session: these are sent without waiting for replies."""
_BITS_MAX = 3
REATTACH_EVERY = 25
OPERATIONS_MAX = 5
ALL, READ = 31, 1
ANYONE = ((ALL, "world", "anyone"),)
NAMES = ("a", "b", "c")
ODD_NAMES = (
    ".", "..", "x//y", "a/", "a/.", "\x01", "\x7f", "\x85", "\ue000", "\ufffd", "\ud7ff", "\uf900",
    "😀", "ä", " ", "a b", "\0", "...", "",
)  # fmt: skip
FOREIGN_PATHS = (
    None, "", "/", "a", "//", "x/y", "/zookeeper", "/zookeeper/config", "/zookeeper/quota",
    "/zookeeper/mine", "/missing/child",
)  # fmt: skip
CREDENTIALS = (b"u:p", b"v:q", b"u:other", b"no-colon", b"\xff:x", b"")
DIGEST_U = "u:9dFyGVGuC6T+V2D7/4yqvK0y/hQ="
ACLS: tuple[Any, ...] = (
    None,
    (),
    ((READ, "world", "anyone"),),
    ((ALL - READ, "world", "anyone"),),
    ((ALL - 2, "world", "anyone"),),
    ((ALL - 4, "world", "anyone"), (4, "auth", "")),
    ((ALL - 8, "world", "anyone"),),
    ((ALL - 16, "world", "anyone"),),
    ((ALL, "auth", ""),),
    ((ALL, "auth", ""), (READ, "auth", "x"), (ALL, "auth", "")),
    ((ALL, "digest", DIGEST_U), (READ, "world", "anyone")),
    ((ALL, "digest", "u:"), ),
    ((ALL, "digest", "a:b:c"),),
    ((ALL, "digest", "a:b:"),),
    ((ALL, "ip", "127.0.0.1"),),
    ((ALL, "ip", "127.0.0.0/8"), (READ, "world", "anyone")),
    ((ALL, "ip", "10.0.0.0/8"), (READ, "world", "anyone")),
    ((ALL, "ip", "10.0.0.0/33"),),
    ((ALL, "ip", "nowhere"),),
    ((ALL, "world", "nobody"),),
    ((ALL, "world", "anyone"),) * 2,
    ((ALL, "kerberos", "x"),),
    ((0, "world", "anyone"),),
)  # fmt: skip


class Step(NamedTuple):
    """One request, or what a client does with its connection: `code` None.

    `text`: the step for a reader, without the root of the sequence.
    """

    session: int
    code: int | None
    record: bytes
    text: str


REATTACH, REOPEN = "reattach", "close the session and open another"


class Sequence:
    """The steps of one seed. `root`: the path that they work below."""

    def __init__(self, seed: int, root: str) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.zxid = 0

    def steps(self, requests: int = REQUESTS) -> list[Step]:
        """Return the steps: first the nodes that most others need, then random ones."""
        found = [self._create(0, path, ANYONE, 0) for path in ("", "/a", "/b", "/a/b")]
        session = 0
        for number in range(1, requests + 1):
            if self.chance.random() > _STAYS:
                session = self.chance.randrange(SESSIONS)
            found.append(self._step(session))
            if number % REATTACH_EVERY == 0:
                found.append(Step(session, None, b"", REATTACH))
                found.append(self._set_watches(session, wire.SET_WATCHES2))
        return found

    def _create(self, session: int, below: str, acl: Any, flags: int) -> Step:
        record = self._create_record(self.root + below, b"", acl, flags)
        return Step(session, wire.CREATE, record, f"create {below!r}")

    @staticmethod
    def _create_record(path: str | None, data: bytes | None, acl: Any, flags: int) -> bytes:
        return wire.text(path) + wire.data(data) + wire.acl(acl) + wire.integer(flags)

    # ---- values

    def path(self) -> str | None:
        """Return a path below the root: mostly a plain one, seldom one that no server accepts."""
        draw = self.chance.random()
        if draw < 0.03:
            return self.chance.choice(FOREIGN_PATHS)
        if draw < 0.08:
            return f"{self._plain()}/{self.chance.choice(ODD_NAMES)}"
        return self._plain()

    def _plain(self) -> str:
        depth = self.chance.choices((0, 1, 2, 3), (2, 9, 5, 1))[0]
        return self.root + "".join(f"/{self.chance.choice(NAMES)}" for _ in range(depth))

    def data(self) -> bytes | None:
        return self.chance.choice((None, b"", b"x", b"data"))

    def acl(self) -> Any:
        return self.chance.choice(ACLS) if self.chance.random() < 0.2 else ANYONE

    def flags(self) -> int:
        return self.chance.choices((0, 1, 2, 3, 4, 5, 6, 7, -1), (20, 12, 6, 6, 2, 1, 1, 1, 1))[0]

    def version(self) -> int:
        return self.chance.choices((-1, 0, 1, 2, -2, 7), (20, 6, 3, 1, 1, 1))[0]

    def watch(self) -> bool:
        return self.chance.random() < 0.8

    # ---- requests

    def _step(self, session: int) -> Step:
        if self.chance.random() < 0.02:
            return Step(session, None, b"", REOPEN)
        codes, weights = zip(*_WEIGHTS.items(), strict=True)
        [code] = self.chance.choices(codes, weights)
        if code in (wire.SET_WATCHES, wire.SET_WATCHES2):
            return self._set_watches(session, code)
        return Step(session, code, *self._request(code))

    def _request(self, code: int) -> tuple[bytes, str]:
        """Return the record of a random request, and its text."""
        if code in (wire.MULTI, wire.MULTI_READ):
            return self._several(code)
        if code == wire.AUTH:
            scheme = self.chance.choices(("digest", "ip"), (9, 1))[0]
            credentials = self.chance.choice(CREDENTIALS)
            record = wire.integer(0) + wire.text(scheme) + wire.data(credentials)
            return record, f"auth {scheme} {credentials!r}"
        if code == wire.RECONFIG:
            return wire.text("") * 3 + wire.long(-1), "reconfig"
        if code in (wire.PING, wire.WHO_AM_I):
            return b"", NAMES_OF[code]
        return self._single(code)

    def _single(self, code: int) -> tuple[bytes, str]:
        path = self.path()
        shown = f"{NAMES_OF[code]} {self._shown(path)}"
        if code in _CREATES:
            flags = self.flags()
            if code == wire.CREATE_CONTAINER and flags <= _BITS_MAX:
                flags &= (
                    ~1
                )  # Apache refuses it children until it is applied: when that is depends on time
            if code == wire.CREATE_TTL:
                flags = self.chance.choice((5, 6))
            values = path, self.data(), self.acl(), flags
            record = self._create_record(*values)
            if code == wire.CREATE_TTL:
                record += wire.long(5_000)
            return record, f"{shown} {values[1:]}"
        record = wire.text(path)
        if code == wire.SET:
            value, version = self.data(), self.version()
            return record + wire.data(value) + wire.integer(version), f"{shown} {value!r} {version}"
        if code == wire.SET_ACL:
            entries, version = self.acl(), self.version()
            return record + wire.acl(entries) + wire.integer(
                version
            ), f"{shown} {entries} {version}"
        if code in (wire.DELETE, wire.CHECK):
            version = self.version()
            return record + wire.integer(version), f"{shown} {version}"
        if code in _READS_WITH_WATCH:
            watch = self.watch()
            return record + wire.boolean(watch), f"{shown} watch={watch}"
        if code in _WATCH_REQUESTS:
            kind = self.chance.randrange(*_WATCH_REQUESTS[code])
            return record + wire.integer(kind), f"{shown} {kind}"
        return record, shown

    def _several(self, code: int) -> tuple[bytes, str]:
        kinds = _IN_MULTI if code == wire.MULTI else _IN_MULTI_READ
        codes, weights = zip(*kinds.items(), strict=True)
        operations, shown = [], []
        for chosen in self.chance.choices(codes, weights, k=self.chance.randrange(6)):
            record, text = self._single(chosen)
            operations.append((chosen, record))
            shown.append(text)
        return wire.multi(operations), f"{NAMES_OF[code]} [{', '.join(shown)}]"

    def _set_watches(self, session: int, code: int) -> Step:
        lists = [
            [self._plain() for _ in range(self.chance.randrange(3))]
            for _ in range(3 if code == wire.SET_WATCHES else 5)
        ]
        # The zxid that the client has seen is chosen when the step runs: see `Side`.
        back = self.chance.choice((0, 1, 3, 10))
        record = wire.long(back) + b"".join(map(wire.texts, lists))
        shown = [[path.replace(self.root, "ROOT") for path in paths] for paths in lists]
        return Step(session, code, record, f"{NAMES_OF[code]} {back} zxids ago {shown}")

    def _shown(self, path: str | None) -> str:
        if path is not None and path.startswith(self.root):
            return repr("ROOT" + path.removeprefix(self.root))
        return repr(path)


NAMES_OF = {
    getattr(wire, name): name.lower()
    for name in dir(wire)
    if name.isupper() and type(getattr(wire, name)) is int and name != "EVENT_XID"
}
_CREATES = (wire.CREATE, wire.CREATE2, wire.CREATE_CONTAINER, wire.CREATE_TTL)
_READS_WITH_WATCH = (wire.EXISTS, wire.GET, wire.CHILDREN, wire.CHILDREN2)
_WATCH_REQUESTS = {wire.ADD_WATCH: (3,), wire.CHECK_WATCHES: (7,), wire.REMOVE_WATCHES: (7,)}
_WEIGHTS = {
    wire.CREATE: 16,
    wire.CREATE2: 6,
    wire.CREATE_CONTAINER: 3,
    wire.CREATE_TTL: 0.3,
    wire.DELETE: 12,
    wire.EXISTS: 12,
    wire.GET: 9,
    wire.SET: 12,
    wire.GET_ACL: 3,
    wire.SET_ACL: 4,
    wire.CHILDREN: 7,
    wire.CHILDREN2: 7,
    wire.SYNC: 1,
    wire.PING: 1,
    wire.MULTI: 14,
    wire.MULTI_READ: 3,
    wire.RECONFIG: 0.3,
    wire.AUTH: 2,
    wire.SET_WATCHES: 1,
    wire.SET_WATCHES2: 2,
    wire.ADD_WATCH: 9,
    wire.CHECK_WATCHES: 2,
    wire.REMOVE_WATCHES: 3,
    wire.EPHEMERALS: 1,
    wire.COUNT_CHILDREN: 1,
    wire.WHO_AM_I: 1,
}
_IN_MULTI = {
    wire.CREATE: 12,
    wire.CREATE2: 5,
    wire.CREATE_CONTAINER: 2,
    wire.CREATE_TTL: 0.2,
    wire.DELETE: 8,
    wire.SET: 8,
    wire.CHECK: 6,
    wire.GET: 0.2,
}
_IN_MULTI_READ = {wire.GET: 1, wire.CHILDREN: 1}
