"""Explanations of a partition's state: its history from the ledgers, and the causes of its problems."""
