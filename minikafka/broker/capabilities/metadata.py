"""A second source of the cluster's metadata, which is asked when clients need them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol


class MetadataSource(Protocol):
    """The metadata of a mode that does not pass every change to `Orders.update_metadata` at once."""

    def asked(
        self, topics: Collection[str] | None, *, is_missing: bool
    ) -> asyncio.Future[bool] | None:
        """Learn that a client's request needs the metadata of these topics and of the brokers (None: of all topics).

        Called before the request is handled, so it must return within microseconds. `is_missing`: the metadata lack
        something that the request names. Return None if the request is to be handled at once. Otherwise return a
        future, which many requests may share. Its result is True when newer metadata were passed on, and False if the
        attempt has failed.
        """

    def followed(self, topics: Collection[str]) -> AbstractContextManager[None]:
        """Return a context in which every change of these topics is passed on soon, without a client's request.

        A request that waits for a change of the metadata is in such a context. Without it, the change would be
        passed on with the next read of all topics.
        """
