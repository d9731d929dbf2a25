"""The settings of the window pipeline, and their check before Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.pipelines import plot
from minikafka.spark.pipelines.streams.streams import AVAILABLE_NOW, Trigger
from minikafka.spark.storage.locations import check_options, options_of

KEY: Final = "key"
_PLACES: Final = ("topic", "partition")


@dataclass(frozen=True)
class WindowSettings:
    """The settings of the window pipeline.

    `by`, `value` and `time` name a field of a JSON value as `$.field`. `by` may also be `key`, `topic` or
    `partition`. If `time` is None, the record's timestamp is used. The windows are written to the directory
    `parquet` or to the topic `to`, if one of the two is set.
    """

    servers: str
    topics: tuple[str, ...]
    size_s: int
    slide_s: int | None = None
    by: str | None = None
    value: str | None = None
    time: str | None = None
    watermark_s: int = 600
    dead_letter: str | None = None
    """The topic for malformed records. They are in no window; with None, they are not written anywhere."""
    parquet: str | None = None
    to: str | None = None
    checkpoint: str | None = None
    trigger: Trigger = AVAILABLE_NOW
    plot: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, if `parquet` is a URI. They may be secrets."""
    skip_lost: bool = False
    """Continue after records that were deleted before they were read."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options that protect connections."""

    def query(self) -> dict[str, str | None]:
        """Return the options that must stay the same as long as a checkpoint is used."""
        slide = None if self.slide_s is None else f"{self.slide_s} s"
        return {
            "--size": f"{self.size_s} s",
            "--slide": slide,
            "--by": self.by,
            "--value": self.value,
            "--time": self.time,
        }

    @property
    def slide_us(self) -> int:
        """The time between the starts of two windows, in microseconds."""
        return 1_000_000 * (self.size_s if self.slide_s is None else self.slide_s)

    @property
    def size_us(self) -> int:
        """The length of a window, in microseconds."""
        return 1_000_000 * self.size_s

    @property
    def reads_json(self) -> bool:
        """True if an option names a field of the JSON value."""
        return any(path and path.startswith("$") for path in (self.by, self.value, self.time))

    def check(self) -> None:
        """Raise `ConfigError` for settings that contradict each other."""
        if self.slide_s is not None and self.slide_s > self.size_s:
            text = f"the slide of {self.slide_s} s is longer than the window of {self.size_s} s"
            raise ConfigError(f"{text}: records between two windows would not be counted")
        for name, path in (("by", self.by), ("value", self.value), ("time", self.time)):
            allowed = (KEY, *_PLACES) if name == "by" else ()
            if path is not None and not path.startswith("$") and path not in allowed:
                words = ", ".join((*allowed, "$.field of a JSON value"))
                raise ConfigError(f"--{name} must be one of {words}, not {path!r}")
        if self.checkpoint and not (self.parquet or self.to):
            raise ConfigError("a stream needs --parquet DIR or --to TOPIC to write its windows to")
        if self.parquet and self.to:
            raise ConfigError("give one of --parquet and --to, not both")
        if self.to in self.topics:
            raise ConfigError(
                f"--to must be a topic that is not read by this command, not {self.to}"
            )
        if self.dead_letter is not None and self.dead_letter in (*self.topics, self.to):
            raise ConfigError(
                f"--dead-letter must be a topic that is neither read nor written by this command,"
                f" not {self.dead_letter}"
            )
        check_options((self.parquet, self.plot), self.storage)
        if self.parquet:
            TableDirectory(self.parquet, options_of(self.parquet, self.storage))
        if self.checkpoint is None and self.trigger.interval is not None:
            raise ConfigError("--continuous needs --checkpoint DIR")
        if self.plot:
            plot.check_path(self.plot, self.storage)
            if self.checkpoint and not self.parquet:
                raise ConfigError("--plot of a stream needs --parquet DIR, which it reads")
