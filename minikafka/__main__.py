"""`python -m minikafka`: the same as the console script `minikafka`."""

from __future__ import annotations

from minikafka.cli.main import main

main()
