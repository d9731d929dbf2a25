"""Produce requests, from the receive buffer to the response."""
