"""The end of a server process, as a service manager or a container sees it."""

from __future__ import annotations

import os
import signal

import pytest

from minikafka.base.errors import ConfigError, DirectoryInUse
from minikafka.tools.cli.foreground.exit_codes import end_by_signals_as_init, without_restart


def test_only_the_named_errors_get_the_code_that_prevents_a_restart() -> None:
    with pytest.raises(ConfigError) as wrong, without_restart(ConfigError):
        raise ConfigError("wrong")
    with pytest.raises(DirectoryInUse) as used, without_restart(ConfigError):
        raise DirectoryInUse("used")
    assert (wrong.value.exit_code, used.value.exit_code) == (2, 1)


def test_first_process_of_a_container_ends_by_a_signal_before_it_serves() -> None:
    """Linux ignores a signal to process 1 that has no handler. A child stands for that process."""
    child = os.fork()
    if child == 0:
        os.getpid = lambda: 1  # type: ignore[assignment]
        end_by_signals_as_init()
        signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
