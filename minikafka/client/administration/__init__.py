"""The administrator's side of the client: topics, settings, groups and transactions."""
