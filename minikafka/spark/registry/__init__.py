"""Records with a schema registry: Avro, Protobuf and JSON in the format of Confluent's serializers.

The driver and the executors need `pip install 'minikafka[registry]'`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decoded(
    frame: DataFrame, format: str, options: Mapping[str, str], column: str = "value"
) -> DataFrame:
    """Return the frame with the records of a binary column decoded to the columns of a schema.

    `format`: confluent_avro, confluent_protobuf or confluent_json. `options`: see docs/schema-registry.md. The column
    becomes a struct, which is null where the record is null. With the mode permissive, it is also null where the
    record cannot be decoded, and the column `_malformed` says why. Raises ConfigError for wrong options, and
    RegistryError if the registry does not have the schema.
    """
    from minikafka.spark.registry import functions

    return functions.decoded(frame, format, options, column)


def encoded(
    frame: DataFrame, format: str, options: Mapping[str, str], column: str = "value"
) -> DataFrame:
    """Return the frame with the rows of a struct column encoded with a schema. A null struct becomes null.

    `format` and `options` as for `decoded`. Raises ConfigError if the schema cannot hold the column, and
    RegistryError if the registry refuses or does not have the schema.
    """
    from minikafka.spark.registry import functions

    return functions.encoded(frame, format, options, column)
