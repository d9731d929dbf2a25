"""The error or warning about lost records that a query should have read (option `failOnDataLoss`)."""

from __future__ import annotations

import logging

from minikafka.base.errors import MinikafkaError

logger = logging.getLogger(__name__)


class DataLost(MinikafkaError):
    """Requested offsets are not in the log. Raised if the option `failOnDataLoss` is true."""


def report_loss(text: str, *, fail: bool) -> None:
    """Report lost offsets: raise `DataLost` if `fail` (the option `failOnDataLoss`), else log a warning."""
    if fail:
        raise DataLost(f"{text}; set failOnDataLoss to false to read the rest")
    logger.warning("%s", text)
