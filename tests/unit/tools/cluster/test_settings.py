"""The settings of a cluster in `cluster.json`."""

from __future__ import annotations

import json

from minikafka.tools.cluster.settings import ClusterSettings, decode_settings, encode_settings


def test_settings_survive_their_form_in_the_record() -> None:
    settings = ClusterSettings(
        {"min.insync.replicas": 2}, {"num.partitions": 5, "log.dirs": ["a"]}, {2: {"a": True}}
    )
    assert decode_settings(json.loads(json.dumps(encode_settings(settings)))) == settings


def test_text_of_settings_has_no_keys_which_may_be_passwords() -> None:
    settings = ClusterSettings({}, {"ssl.key.password": "hidden-1"}, {1: {"a": "hidden-2"}})
    assert "hidden" not in repr(settings)
