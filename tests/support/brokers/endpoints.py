"""Endpoints of imaginary brokers: one listener for clients and the control listener."""

from __future__ import annotations

from minikafka.base.endpoints import Endpoint


def endpoints(
    host: str = "127.0.0.1",
    port: int = 9092,
    control_host: str = "127.0.0.1",
    control_port: int = 19092,
) -> tuple[Endpoint, ...]:
    return (
        Endpoint("PLAINTEXT", host, port),
        Endpoint("CONTROLLER", control_host, control_port),
    )


def control_at(host: str, port: int) -> Endpoint:
    return Endpoint("CONTROLLER", host, port)
