"""The messages between ZooKeeper's clients and its server: their numbers, values and bytes, for both sides.

`codes.py` has the numbers, `jute.py` the encoding of single values, `requests.py` and `replies.py` the messages.
"""
