"""The one place that opens the files of a table, by the path of a file or by a URI."""

from __future__ import annotations

import os
import re
from typing import Final

from pyarrow import fs

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_uri(place: str) -> bool:
    """True for a URI such as `s3://bucket/table`, false for a path."""
    return bool(_URI.match(place))


def absolute(place: str) -> str:
    """Return a URI unchanged, and a path as an absolute path. Both without a slash at the end."""
    return (place if is_uri(place) else os.path.abspath(place)).rstrip("/") or "/"


def file_uri(place: str) -> str:
    """Return the URI of an absolute path, and a URI unchanged."""
    return place if is_uri(place) else f"file://{place}"


def opened(place: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    if not is_uri(place):
        return fs.LocalFileSystem(), place
    if place.startswith("file:"):
        return fs.LocalFileSystem(), "/" + place.removeprefix("file:").lstrip("/")
    found, path = fs.FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return found, str(path)


def exists(place: str) -> bool:
    """True if there is a file or directory at a path or URI."""
    files, path = opened(place)
    return bool(files.get_file_info(path).type != fs.FileType.NotFound)
