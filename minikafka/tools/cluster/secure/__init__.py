"""Secure clusters: their certificate authority, their users, and how clients and commands connect to them."""
