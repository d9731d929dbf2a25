"""Translators for servers that lack a part of the APIs that obstore and deltalake use.

fake-gcs-server has the conditions of a write only in Google's JSON API. So its translator sends writes, copies and
removals as requests of that API, and everything else as it is. The server decides whether an object exists already.
Neither fake-gcs-server nor Azurite begins a list at a name, so the translators leave out the names before it.
"""

from __future__ import annotations

import http.client
import re
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from support.spark.request_server import RequestServer, body_of, respond


class _Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


_NO_BUCKET: Final = _Answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")


class _Translator:
    """A server in front of the server at `target`, a URL. `failed`: as of a proxy."""

    failed = 0

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._http = RequestServer(self._serve)
        self.endpoint = self._http.endpoint

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        answer = self.answer(request, body_of(request))
        respond(request, answer.status, answer.body, answer.headers)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        """Return the answer to a request."""
        raise NotImplementedError

    def _pass(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        return self._send(request.command, request.path, body, headers)

    def _send(self, verb: str, path: str, body: bytes, headers: dict[str, str]) -> _Answer:
        connection = http.client.HTTPConnection(str(self._target.hostname), self._target.port)
        try:
            connection.request(verb, path, body, headers)
            response = connection.getresponse()
            dropped = ("connection", "date", "transfer-encoding")
            kept = [pair for pair in response.getheaders() if pair[0].lower() not in dropped]
            return _Answer(response.status, response.read(), tuple(kept))
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the translator."""
        self._http.close()


class AzureTranslator(_Translator):
    """In front of Azurite."""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        fields = parse_qs(urlsplit(request.path).query)
        found = self._pass(request, body)
        return _from(fields["startFrom"][0], found) if "startFrom" in fields else found


class GoogleTranslator(_Translator):
    """In front of fake-gcs-server."""

    def __init__(self, target: str) -> None:
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = count(1)
        super().__init__(target)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        """Return the answer to a request of the XML API or of the JSON API."""
        target = urlsplit(request.path)
        bucket, _, name = unquote(target.path).lstrip("/").partition("/")
        fields = parse_qs(target.query, keep_blank_values=True)
        if start := fields.get("start-after", [""])[0]:
            return _from(start, self._pass(request, body))
        if not name or target.path.startswith(("/storage/", "/upload/", "/download/")):
            return self._pass(request, body)
        if upload := fields.get("uploadId", [""])[0]:
            return self._part(upload, fields, bucket, name, body, request.command)
        if "uploads" in fields:
            upload = str(next(self._numbers))
            self._uploads[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        if request.command == "DELETE":
            return self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        if source := request.headers.get("x-goog-copy-source"):
            return self._copy(bucket, unquote(source).lstrip("/").partition("/")[2], name)
        if request.command == "PUT":
            return self._put(bucket, name, body, request.headers.get("x-goog-if-generation-match"))
        return self._pass(request, body)

    def _part(
        self,
        upload: str,
        fields: dict[str, list[str]],
        bucket: str,
        name: str,
        body: bytes,
        verb: str,
    ) -> _Answer:
        """Add a part to an upload; complete it (POST), or forget it (DELETE)."""
        if upload not in self._uploads:
            return _Answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        if verb == "PUT":
            self._uploads[upload][int(fields["partNumber"][0])] = body
            return _Answer(200, b"", (("ETag", f'"{len(body)}"'),))
        parts = self._uploads.pop(upload)
        if verb == "DELETE":
            return _Answer(204)
        done = self._put(bucket, name, b"".join(parts[number] for number in sorted(parts)), None)
        if done.status != 200:
            return done
        return _xml("CompleteMultipartUploadResult", "<ETag>all</ETag>")

    def _put(self, bucket: str, name: str, body: bytes, generation: str | None) -> _Answer:
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        place = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        found = self._ask("POST", place + condition, body)
        return _NO_BUCKET if found.status == 404 else found

    def _copy(self, bucket: str, source: str, target: str) -> _Answer:
        names = f"{quote(source, safe='')}/rewriteTo/b/{bucket}/o/{quote(target, safe='')}"
        return self._ask("POST", f"/storage/v1/b/{bucket}/o/{names}")

    def _ask(self, verb: str, path: str, body: bytes = b"") -> _Answer:
        """Send a request of the JSON API, and return its answer in the form of the XML API."""
        found = self._send(verb, path, body, {"Content-Type": "application/octet-stream"})
        if found.status >= 300:
            message = re.search(rb'"message":"([^"]*)"', found.body)
            return _Answer(found.status, message[1] if message else found.body)
        return _Answer(found.status, b"", (("ETag", '"whole"'), ("x-goog-generation", "1")))


def _xml(name: str, inner: str) -> _Answer:
    return _Answer(200, f"<{name}>{inner}</{name}>".encode())


_ENTRY: Final = re.compile(
    rb"<(?P<kind>Contents|Blob)><(Key|Name)>(?P<name>[^<]*)<.*?</(?P=kind)>", re.DOTALL
)


def _from(start: str, listed: _Answer) -> _Answer:
    """Return the answer to a list request with only the names from `start` on."""
    first = start.encode()
    kept = _ENTRY.sub(lambda one: one[0] if one["name"] >= first else b"", listed.body)
    headers = tuple(pair for pair in listed.headers if pair[0].lower() != "content-length")
    return _Answer(listed.status, kept, headers)
