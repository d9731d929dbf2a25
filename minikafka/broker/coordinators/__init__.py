"""The coordinators that a broker hosts, and what they need from its replicas."""
