"""The lines about why a broker does nothing about a partition."""

from __future__ import annotations

import logging

import pytest
from support.deciders.leaders_views import ID, T0, view

from minikafka.deciders.leaders.context import Context

LED = view(leader=(0, 7), ours=True, isr=(0, 1))


def test_refusal_is_noted_once_per_view(caplog: pytest.LogCaptureFixture) -> None:
    context = Context(0)
    replica = context.host(T0, ID, is_new=False)
    context.take_commands()
    for seen in (LED, LED, view()):
        context.refuse(replica, seen, "it is torn")
    assert len(context.take_commands()) == 2
    assert caplog.text.count("partition t-0: it is torn") == 2


def test_refusal_without_a_fault_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Context(0).note_refusal(T0, "it has moved", logging.INFO)
    assert caplog.text == ""
