"""The transaction coordinator (KIP-98, KIP-360, KIP-664, part 1 of KIP-890): requests and times in, commands out.

The package is pure: no asyncio, clock, file or socket.
"""
