"""The proxy in front of the ports of a cluster with faults: its rules, its connections, and the calls to it."""
