"""The zip archive with the code of the data source and the pipelines for executors.

Spark adds the archive to the Python path of the workers (`--py-files`, `addPyFile`). The archive also contains
the module `pyspark_minikafka`. Through this module, Spark finds the data source automatically if the archive is
on PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from minikafka import base

NAME: Final = "minikafka-spark.zip"
_PACKAGES: Final = ("base", "checks/replicas", "kafka/messages", "spark")
_MODULES: Final = {
    "kafka/records": ("__init__", "header", "transactions", "varints"),
    "runtime": ("__init__", "tls_contexts", "tls_files"),
    "security": (
        "__init__",
        "bearer",
        "client_login",
        "jaas",
        "sasl",
        "sasl_client",
        "scram",
        "token_request",
    ),
}
"""The modules of other packages that executors import. They need no library, except `tls_files` on the driver."""
_AUTOLOAD: Final = "minikafka/spark/autoload.py"
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The date of all files in the archive. A fixed date makes archives of equal sources equal."""


def write_archive(path: Path) -> None:
    """Write the archive to `path`. An existing file is replaced atomically."""
    found = running_archive()
    data = _archive_bytes() if found is None else found.read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.chmod(draft, 0o644)
    os.replace(draft, path)


def cached_archive(directory: Path) -> Path:
    """Return the archive from which this code is imported, or else an archive in `directory`.

    The archive in `directory` is written if no archive of the current code exists there.
    """
    if found := running_archive():
        return found
    name = hashlib.sha256(_archive_bytes()).hexdigest()[:16]
    path = directory / f"spark-{name}" / NAME
    if not path.is_file():
        write_archive(path)
    return path


def running_archive() -> Path | None:
    """Return the archive from which this code is imported; None if this code is imported from files."""
    loader = base.__loader__
    return Path(loader.archive) if isinstance(loader, zipimport.zipimporter) else None


def _archive_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in _files(Path(base.__file__).parents[1]):
            member = zipfile.ZipInfo(name, _DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)
    return buffer.getvalue()


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of the archive."""
    sources = [root / name / "__init__.py" for name in ("", "checks", "kafka")]
    for package in _PACKAGES:
        sources += sorted((root / package).rglob("*.py"))
    for package, names in _MODULES.items():
        sources += [root / package / f"{name}.py" for name in names]
    for source in sources:
        name = source.relative_to(root.parent).as_posix()
        yield name, source.read_bytes()
        if name == _AUTOLOAD:
            yield "pyspark_minikafka.py", source.read_bytes()
