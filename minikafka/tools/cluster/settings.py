"""What a cluster remembers of its configurations, in `cluster.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The keys of a cluster. They may have passwords, so they are not in `repr`.

    `made_with`: the `ClusterConfig.topic_defaults` of the first start. `common` and `overrides`: the keys of the last
    configuration for all brokers and for single brokers by id, without the secret.
    """

    made_with: Mapping[str, int]
    common: Mapping[str, object] = field(repr=False)
    overrides: Mapping[int, Mapping[str, object]] = field(repr=False)

    def keys_of(self, broker_id: int) -> dict[str, object]:
        """Return the remembered keys of a broker."""
        return {**self.common, **self.overrides.get(broker_id, {})}


def encode_settings(settings: ClusterSettings) -> dict[str, Any]:
    """Return the settings as JSON."""
    overrides = {str(id_): dict(keys) for id_, keys in settings.overrides.items()}
    return {
        "made_with": dict(settings.made_with),
        "broker": dict(settings.common),
        "overrides": overrides,
    }


def decode_settings(value: Any) -> ClusterSettings:
    """Return the settings from their JSON. Raises ValueError, KeyError, TypeError or AttributeError."""
    made_with = {str(name): int(number) for name, number in value["made_with"].items()}
    overrides = {int(id_): dict(keys) for id_, keys in value["overrides"].items()}
    return ClusterSettings(made_with, dict(value["broker"]), overrides)
