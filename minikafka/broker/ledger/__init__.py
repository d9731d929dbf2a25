"""The ledger: a broker's record of events, decisions, writes, requests and effects, as lines of JSON."""
