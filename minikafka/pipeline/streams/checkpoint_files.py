"""The files in the directory of a checkpoint, on any file system of Hadoop."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from minikafka.base.names import parse_json
from minikafka.pipeline.session.failures import PipelineError


class CheckpointFiles:
    """The files of one checkpoint. Names are paths below its directory."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._jvm: Any = spark._jvm
        self._checkpoint = checkpoint
        configuration = spark._jsc.hadoopConfiguration()
        self._files = self._path("").getFileSystem(configuration)

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self._checkpoint, name) if name else path(self._checkpoint)

    def has(self, name: str) -> bool:
        """True if the checkpoint has a file or directory of this name."""
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file."""
        if not self.has(name):
            return None
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file; None if there is no such file. Raises `PipelineError` if it is damaged."""
        text = self.read(name)
        try:
            return None if text is None else parse_json(text)
        except ValueError as error:
            place = self.url(name)
            raise PipelineError(
                f"{place} is damaged: {error}; restore it, or name a new checkpoint"
            ) from error

    def write(self, name: str, text: str) -> None:
        """Write a file, and replace a file of this name."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def names(self, directory: str) -> list[str]:
        """Return the names of the files and directories in a directory; an empty list if it does not exist."""
        if not self.has(directory):
            return []
        return [
            str(one.getPath().getName()) for one in self._files.listStatus(self._path(directory))
        ]

    def remove(self, name: str) -> None:
        """Remove a file or directory, if it exists."""
        self._files.delete(self._path(name), True)

    def url(self, name: str) -> str:
        """Return the path of a file or directory in the notation that Spark reads and writes."""
        return str(self._path(name))
