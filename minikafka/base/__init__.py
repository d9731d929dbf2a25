"""Types, errors, configuration keys and ports that all packages share.

This package imports no other package of minikafka.
"""
