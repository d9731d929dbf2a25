"""The names of the coordination modes, and of the key that chooses one."""

from __future__ import annotations

from typing import Final

COORDINATION: Final = "minikafka.coordination"
"""Key of a broker's configuration and of meta.properties."""
CONTROLLER: Final = "controller"
LEADERS: Final = "leaders"
MODES: Final = (CONTROLLER, LEADERS)
