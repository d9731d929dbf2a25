"""What happens when records that a query should read are gone (`failOnDataLoss`)."""

from __future__ import annotations

import logging

from minikafka.base.errors import MinikafkaError

logger = logging.getLogger(__name__)


class DataLost(MinikafkaError):
    """Requested offsets are no longer, or not yet, in the log (`failOnDataLoss`)."""


def report_loss(text: str, *, fail: bool) -> None:
    """Report lost offsets according to `failOnDataLoss`: raise `DataLost`, or log a warning."""
    if fail:
        raise DataLost(f"{text}; set failOnDataLoss to false to read the rest")
    logger.warning("%s", text)
