"""Fetch requests of followers and consumers, from the receive buffer to the response."""
