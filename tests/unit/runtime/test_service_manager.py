"""Messages to the service manager: one datagram to a path or to an abstract name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from minikafka.runtime.service_manager import VARIABLE, ServiceManager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_messages_arrive_at_the_socket_which_children_do_not_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    address = f"@{tmp_path}" if is_abstract else f"{tmp_path}/notify"
    monkeypatch.setenv(VARIABLE, address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0", 1))
        manager.settimeout(10)
        service = ServiceManager()
        assert VARIABLE not in os.environ
        service.ready("serves")
        assert manager.recv(100) == b"READY=1\nSTATUS=serves"
        service.stopping("stops")
        assert manager.recv(100) == b"STOPPING=1\nSTATUS=stops"


def test_process_goes_on_without_a_manager_and_warns_of_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    ServiceManager().ready("serves")
    assert caplog.messages == []
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/gone")
    ServiceManager().ready("serves")
    assert caplog.messages == [
        f"NOTIFY_SOCKET={tmp_path}/gone cannot be reached: [Errno 2] No such file or directory"
    ]
