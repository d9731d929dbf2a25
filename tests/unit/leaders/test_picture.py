"""The lines about why a broker does nothing about a partition."""

from __future__ import annotations

import logging

import pytest
from support.leaders_views import ID, T0, view

from minikafka.leaders.picture import Picture

LED = view(leader=(0, 7), ours=True, isr=(0, 1))


def test_refusal_is_noted_once_per_view(caplog: pytest.LogCaptureFixture) -> None:
    picture = Picture(0)
    replica = picture.host(T0, ID, is_new=False)
    picture.drain()
    for seen in (LED, LED, view()):
        picture.refuse(replica, seen, "it is torn")
    assert len(picture.drain()) == 2
    assert caplog.text.count("partition t-0: it is torn") == 2


def test_refusal_without_a_fault_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Picture(0).note_refusal(T0, "it has moved", logging.INFO)
    assert caplog.text == ""
