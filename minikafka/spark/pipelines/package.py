"""The archives for jobs on a Spark cluster without minikafka, and the command that submits a job."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.spark import shipping

LIBRARIES: Final = ("fastcrc", "numpy", "pyarrow")
"""The packages that executors need in addition to pyspark, which is part of Spark."""
OF_REGISTRY: Final = ("fastavro", "protobuf")
"""The packages that executors need for records with a schema registry. They are packed if they are installed."""
_LIBRARIES_NAME: Final = "minikafka-libraries.tar.gz"
_UNPACKED: Final = "libraries"
"""The directory on each executor into which Spark unpacks the libraries."""
_OMITTED: Final = ("__pycache__", "tests", "include")


@dataclass(frozen=True)
class Package:
    """The archives to submit with a job.

    `code`: the archive of minikafka's code (`spark/shipping.py`). `libraries`: the archive of pyarrow, numpy and
    fastcrc; None if the executors already have these packages.
    """

    code: Path
    libraries: Path | None

    def submit_command(self, master: str, job: str) -> str:
        """Return the shell command that submits a job with these archives.

        The driver's Python workers find modules only through PYTHONPATH. Without PYTHONPATH, a stream would not
        find the data source.
        """
        words = [f"PYTHONPATH={self.code}", "spark-submit", "--master", master]
        words += ["--py-files", str(self.code)]
        if self.libraries is not None:
            words += ["--archives", f"{self.libraries}#{_UNPACKED}"]
            words += ["--conf", f"spark.executorEnv.PYTHONPATH={_UNPACKED}"]
        return " ".join([*words, job])


def write_package(directory: Path, *, with_libraries: bool) -> Package:
    """Write the archives to a directory, which is created if needed. Raises ConfigError, OSError."""
    code = directory.resolve() / shipping.NAME
    shipping.write_archive(code)
    if not with_libraries:
        return Package(code, None)
    libraries = code.with_name(_LIBRARIES_NAME)
    found = [name for name in OF_REGISTRY if _is_installed(name)]
    write_libraries(libraries, [*LIBRARIES, *found])
    return Package(code, libraries)


def write_libraries(path: Path, names: Sequence[str]) -> None:
    """Write the installed files of these distributions as a tar archive.

    Raises ConfigError if a distribution is not installed. The files include compiled code: executors need the
    same system and the same Python version as this process.
    """
    files = [found for name in names for found in _installed(name)]
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for file in files:
            archive.add(file.locate(), str(file), recursive=False)


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.files(name))
    except metadata.PackageNotFoundError:
        return False


def _installed(name: str) -> Iterator[metadata.PackagePath]:
    """Yield the files of an installed distribution that are needed to import its modules."""
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        files = None
    if files is None:
        raise ConfigError(f"{name} is not installed: pip install 'minikafka[spark]'")
    for file in files:
        if file.parts[0] != ".." and not set(file.parts) & {*_OMITTED}:
            yield file
