"""Names that no other test uses: of topics, groups and transactional ids."""

from __future__ import annotations

import re
from typing import Final

from minikafka.base.ports import Rng

LENGTH_MAX: Final = 200
"""Maximum length of the readable part. Kafka allows 249 characters in the name of a topic."""
_OTHERS: Final = re.compile(r"[^a-zA-Z0-9._-]+")


def unique_name(label: str, rng: Rng) -> str:
    """Return a name that begins with `label`, in the characters that Kafka allows for topics."""
    readable = _OTHERS.sub("-", label).strip("-.")[:LENGTH_MAX]
    return f"{readable or 'minikafka'}-{rng.bytes(4).hex()}"
