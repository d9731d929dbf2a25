"""Handlers of Kafka requests: one module per family of APIs.

The docstring of each module lists API keys, served versions, and the parts of the API that the broker deliberately
ignores.
"""
