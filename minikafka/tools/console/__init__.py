"""The console: a page and an API on 127.0.0.1 that show a cluster as it moves, and run commands on it."""
