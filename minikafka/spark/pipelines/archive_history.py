"""What an archive checks before it reads records: that the log is still the archived one, and that none are lost."""

from __future__ import annotations

from minikafka.base.model import TopicPartition
from minikafka.spark.parquet.archive_directory import Tile
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.source import planning
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.positions import Positions
from minikafka.spark.source.ranges import DataLost


def check_history(options: ReadOptions, begin: Positions, end: Positions, archive: str) -> None:
    """Raise `PipelineError` if an archived log was truncated, or its topic was deleted and recreated."""
    try:
        if gone := sorted(begin.keys() - end.keys()):
            raise DataLost(f"{gone[0]} was deleted, and its topic has fewer partitions now")
        planning.plan_stream(options, begin, {tp: end[tp] for tp in begin})
    except DataLost as error:
        reason = str(error).partition("; set failOnDataLoss")[0]
        text = f"{reason}: the archive {archive} holds records of the former log"
        raise PipelineError(f"{text}; archive to a new directory") from error


def lost_part(tp: TopicPartition, tile: Tile, earliest: int, *, skip_lost: bool) -> Tile | None:
    """Return the part of an offset range that was deleted from the log; None if nothing was deleted.

    Raises `PipelineError` if lost records must not be skipped.
    """
    if tile.start >= earliest:
        return None
    lost = Tile(tile.start, min(tile.end, earliest))
    if not skip_lost:
        raise PipelineError(
            f"offsets {lost.start} to {lost.end - 1} of {tp} were deleted before they were archived;"
            " --skip-lost archives the rest and lists them as lost"
        )
    return lost
