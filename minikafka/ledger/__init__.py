"""The record of what the controller decided and what came of it: one JSON line each."""
