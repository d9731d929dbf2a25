"""The ledger: a broker's record of events, decisions, writes, requests and effects, one JSON object a line."""
