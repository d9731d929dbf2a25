"""Types, errors, configuration keys and ports that all packages share; imports no other package of
minikafka.
"""
