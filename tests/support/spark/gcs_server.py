"""A translator of Google's XML API, of which the library obstore sends requests, for fake-gcs-server.

fake-gcs-server has the conditions of a write only in Google's JSON API. So the translator sends writes, copies and
removals as requests of that API, and everything else as it is. The server decides whether an object exists already.
"""

from __future__ import annotations

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit


class _Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


_NO_BUCKET: Final = _Answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")


class GoogleTranslator:
    """A server in front of the fake-gcs-server at `target`, a URL."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = count(1)
        translator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = translator.answer(self, body)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name, _ in answer.headers):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer:
        """Return the answer to a request of the XML API or of the JSON API."""
        target = urlsplit(request.path)
        bucket, _, name = unquote(target.path).lstrip("/").partition("/")
        if not name or target.path.startswith(("/storage/", "/upload/", "/download/")):
            return self._pass(request, body)
        fields = parse_qs(target.query, keep_blank_values=True)
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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _xml(name: str, inner: str) -> _Answer:
    return _Answer(200, f"<{name}>{inner}</{name}>".encode())
