"""The end of a process together with its parent (Linux only)."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) that sets which signal a process gets when its parent dies."""


def die_with(parent: int) -> None:
    """Make the kernel kill this process when `parent` ends, or at once if `parent` has already ended.

    More exactly, the kernel kills this process when the thread of `parent` that started it ends (see `start_child`).
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
