"""Handlers of Kafka requests: one module per family of APIs.

The docstring of each module lists API keys and served versions, and what the broker deliberately ignores.
"""
