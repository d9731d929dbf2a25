"""The settings of a server, and the limits that nobody needs to change."""

from __future__ import annotations

from typing import Final, NamedTuple

FRAME_MAX: Final = 0xFFFFF
"""The longest frame that a client may send: ZooKeeper's default of `jute.maxbuffer`."""
UNANSWERED_MAX: Final = 1_000
"""A connection with this many unanswered requests is not read until some are answered."""
UNSENT_MAX: Final = 4 << 20
"""A connection with this many unsent bytes is not read until its client has received most of them."""
EVENTS_MAX: Final = 32 << 20
"""A connection for which this many bytes of events wait, or are unsent behind UNSENT_MAX other bytes, is cut off."""
EVENTS_AT_ONCE_MAX: Final = 2_000
"""A connection that gets more events of one transaction is cut off: its client sets its watches again."""
IDENTITIES_MAX: Final = 100
"""A connection that authenticates as more users is closed."""
CREDENTIALS_MAX: Final = 1024
"""Maximum bytes of a user name with its password."""
IDLE_MS: Final = 10_000
"""Maximum time from the start of a connection to its session, and from the server's last reply to the end."""
CONTAINERS_MS: Final = 60_000
"""Time between two removals of empty containers."""


class ServerSettings(NamedTuple):
    """The settings of a server.

    `tick_ms`: ZooKeeper's tickTime. `session_timeout_max_ms`: None for 20 ticks. `connections_max`: further
    connections are closed at once. `snapshot_after`: transactions from one snapshot to the next.
    """

    tick_ms: int = 2000
    session_timeout_max_ms: int | None = None
    connections_max: int = 10_000
    snapshot_after: int = 100_000


DEFAULTS: Final = ServerSettings()
