"""The call with which brokers tell each other which links of the network do not work.

Each broker sends what it knows about all brokers, and gets what the other one knows. So a broker that still answers can
tell about brokers that nobody else reaches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.model import NO_EPOCH, BrokerId
from minikafka.broker.rpc.fields import (
    INT32_MAX,
    INT64_MAX,
    as_broker_id,
    as_integer,
    as_map,
    as_text,
    invalid,
)

SINCE: Final = "0.2"
"""The version of the protocol between brokers that has brought the call."""
LINKS: Final = "links"
"""Request: the registration of the caller, and the reports that it has. Response: the reports that the called broker
has, and the registration of the caller that it knows.
"""
ROWS_MAX: Final = 10_000
"""Maximum number of reports in one body, and of broken links in one report."""
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]{0,1000}")


class BrokenLink(NamedTuple):
    """A link that does not work.

    `to`: the broker that is not reached, None for ZooKeeper. `use`: `fetch`, `calls` or `ZooKeeper`. `since`: Unix ms
    of the first failure, by the clock of the broker that reports it. `for_ms`: the time since then.
    """

    to: BrokerId | None
    use: str
    address: str
    since: int
    for_ms: int
    error: str


class LinkReport(NamedTuple):
    """The broken links that one broker has seen. `age_ms`: the time since it made the report.

    `reached_ms`: by broker, the time since it has answered a call of this broker.
    """

    age_ms: int
    links: tuple[BrokenLink, ...]
    reached_ms: Mapping[BrokerId, int] = {}

    def older(self, by_ms: int) -> LinkReport:
        """Return the report as it is `by_ms` later."""
        links = (link._replace(for_ms=link.for_ms + by_ms) for link in self.links)
        reached_ms = {id_: ago + by_ms for id_, ago in self.reached_ms.items()}
        return LinkReport(self.age_ms + by_ms, tuple(links), reached_ms)


Reports = Mapping[BrokerId, LinkReport]


class LinksBody(NamedTuple):
    """The content of a request or response. `epoch`: see `encode_links`."""

    broker_id: BrokerId
    epoch: int
    reports: Reports


def encode_links(broker_id: BrokerId, epoch: int, reports: Reports) -> dict[str, Any]:
    """Return a request or a response.

    `epoch`: in a request the caller's broker epoch; in a response that under which the called broker knows the caller,
    -1 if it does not list the caller as alive.
    """
    return {"broker_id": broker_id, "epoch": epoch, "reports": as_json(reports)}


def as_json(reports: Reports) -> dict[str, Any]:
    """Return reports as plain values, by broker id."""
    return {
        str(id_): {
            "age_ms": report.age_ms,
            "links": [link._asdict() for link in report.links],
            "reached_ms": {str(other): ago for other, ago in report.reached_ms.items()},
        }
        for id_, report in reports.items()
    }


def decode_links(body: object) -> LinksBody:
    """Return the content of a request or response. Raises KafkaError INVALID_REQUEST."""
    fields = as_map(body, {"broker_id": -1, "epoch": NO_EPOCH, "reports": {}})
    return LinksBody(
        as_integer(fields["broker_id"], -1, INT32_MAX),
        as_integer(fields["epoch"], NO_EPOCH, INT64_MAX),
        reports_of(fields["reports"]),
    )


def reports_of(value: object) -> dict[BrokerId, LinkReport]:
    """Return the reports that `as_json` has made. Raises KafkaError INVALID_REQUEST."""
    return {_id_of(id_): _report(_map(report)) for id_, report in _map(value).items()}


def _report(fields: dict[str, Any]) -> LinkReport:
    links = fields.get("links")
    if not isinstance(links, list) or len(links) > ROWS_MAX:
        raise invalid(f"expected a list of at most {ROWS_MAX} links")
    age_ms = as_integer(fields.get("age_ms"), 0, INT64_MAX)
    reached = _map(fields.get("reached_ms", {}))
    reached_ms = {_id_of(id_): as_integer(ago, 0, INT64_MAX) for id_, ago in reached.items()}
    return LinkReport(age_ms, tuple(map(_link, links)), reached_ms)


def _id_of(text: object) -> BrokerId:
    if not isinstance(text, str) or not text.isdecimal():
        raise invalid("a broker id is not a number")
    return as_broker_id(int(text))


def _link(value: object) -> BrokenLink:
    row = _map(value)
    to = row.get("to")
    return BrokenLink(
        None if to is None else as_broker_id(to),
        as_text(row.get("use"), _TEXT),
        as_text(row.get("address"), _TEXT),
        as_integer(row.get("since"), 0, INT64_MAX),
        as_integer(row.get("for_ms"), 0, INT64_MAX),
        as_text(row.get("error"), _TEXT),
    )


def _map(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > ROWS_MAX:
        raise invalid(f"expected a map with at most {ROWS_MAX} keys")
    return value
