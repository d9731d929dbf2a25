"""The names of classes that a history replaces while it records."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from minikafka.testing.wrap_classes import _rename


class Before:
    pass


class After:
    pass


class Made:
    """A module as cffi makes it: it has no `__dict__`."""

    __slots__ = ()

    @property
    def __class__(self) -> type:
        return ModuleType


def test_class_is_replaced_although_a_loaded_module_has_no_dict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = ModuleType("user")
    user.Client = Before  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_by_cffi", Made())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "user", user)
    _rename(Before, After)
    assert user.Client is After
