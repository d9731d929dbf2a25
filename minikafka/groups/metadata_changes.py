"""Descriptions of the changes in a member's metadata when the member joins again, for the ledger."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.groups.messages.records import subscribed_topics
from minikafka.groups.state.member import Protocols


def metadata_changes(before: Protocols, after: Protocols, is_consumer: bool) -> list[str]:
    """Return a description of each change of a member's protocols.

    `is_consumer`: true if the protocols' metadata are subscriptions of consumers.
    """
    old, new = dict(before), dict(after)
    found = [f"added protocol {name}" for name in new if name not in old]
    found += [f"removed protocol {name}" for name in old if name not in new]
    if not found and list(old) != list(new):
        found.append("changed its preference of protocols")
    both = [name for name in new if name in old and old[name] != new[name]]
    if is_consumer and both:
        found += _topic_changes(old[both[0]], new[both[0]])
    if both and not any("subscribe" in words for words in found):
        data = "the owned partitions or the assignor's data" if is_consumer else "the metadata"
        found.append(f"changed {data} of {', '.join(both)}")
    return found


def _topic_changes(before: bytes, after: bytes) -> Iterator[str]:
    """Yield a description of each changed topic; nothing if one of the subscriptions is not readable."""
    try:
        old, new = subscribed_topics(before), subscribed_topics(after)
    except ValueError:
        return
    for topic in sorted(new - old):
        yield f"subscribes to {topic}"
    for topic in sorted(old - new):
        yield f"no longer subscribes to {topic}"
