"""The requests that Kafka does not have: API key → fields, in the format of `kafka/messages/table.py`."""

from __future__ import annotations

from typing import Final

OWN_REQUESTS: Final = {
    27755: """InspectBrokerRequest 0, flexible 0+
  question: string 0+
  argument: string 0+
  position: string 0+""",
}

OWN_RESPONSES: Final = {
    27755: """InspectBrokerResponse 0, flexible 0+
  throttle_time_ms: int32 0+
  error_code: int16 0+
  error_message: string 0+ null 0+
  broker_id: int32 0+
  rows: [Row] 0+
    json: bytes 0+
  next_position: string 0+""",
}
