"""A schema registry in a thread: the HTTP API of Confluent's registry, as strict as real ones.

It refuses a wrong content type (415), a missing or wrong login (401), a user without rights (403), a schema that is not
valid (42201) or not compatible (409), and answers 404 with the codes 40401, 40402 and 40403. A schema of the type
PROTOBUF is a FileDescriptorProto in base64, which Confluent's registry accepts too.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import fastavro
from google.protobuf import descriptor_pb2

CONTENT = "application/vnd.schemaregistry.v1+json"


class Refusal(Exception):
    """A response with an error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.body = status, {"error_code": code, "message": message}


class StandInRegistry:
    """The state of the registry. `logins`: the values of Authorization that may read and write; empty for any.

    `forbidden`: those that are known and have no right. `requests`: the methods and paths of all requests.
    `failing`: the status that a path is answered with.
    """

    def __init__(self) -> None:
        self.url = ""
        self.logins: set[str] = set()
        self.forbidden: set[str] = set()
        self.requests: list[str] = []
        self.failures = 0
        self.failing: dict[str, int] = {}
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def add(self, subject: str, text: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema and return its id. Raises Refusal."""
        text = text if isinstance(text, str) else json.dumps(text)
        found = {"schema": text, "schemaType": kind, "references": [*references]}
        with self._lock:
            _check_valid(found, self._texts(references))
            versions = self._subjects.get(subject, [])
            for one in versions:
                if self._schemas[one] == found:
                    return one
            if versions and kind == "AVRO" and not references:
                _check_compatible(text, self._schemas[versions[-1]]["schema"])
            same = [number for number, one in self._schemas.items() if one == found]
            number = same[0] if same else len(self._schemas) + 1
            self._schemas[number] = found
            self._subjects.setdefault(subject, []).append(number)
            return number

    def force(self, subject: str, text: Any, kind: str = "AVRO") -> int:
        """Register a schema without a check of compatibility, as with the compatibility NONE."""
        found = {"schema": json.dumps(text), "schemaType": kind, "references": []}
        with self._lock:
            number = len(self._schemas) + 1
            self._schemas[number] = found
            self._subjects.setdefault(subject, []).append(number)
            return number

    def _texts(self, references: Any) -> list[str]:
        found = []
        for one in references:
            other = self._schemas[self._subjects[one["subject"]][one["version"] - 1]]
            found += [*self._texts(other["references"]), other["schema"]]
        return found

    def answer(self, method: str, path: str, body: Any) -> Any:
        """Return the body of the response to a request. Raises Refusal."""
        parts = urlsplit(path)
        words = [unquote(one) for one in parts.path.strip("/").split("/")]
        if method == "GET" and words == ["subjects"]:
            return [*self._subjects]
        if method == "GET" and words[:2] == ["schemas", "ids"] and len(words) == 3:
            return self._of_id(int(words[2]), parse_qs(parts.query))
        if words[0] == "subjects" and len(words) == 4 and words[2] == "versions":
            return self._version(words[1], words[3])
        if method == "POST" and words[0] == "subjects" and words[2:] in ([], ["versions"]):
            given = (body["schema"], body.get("schemaType", "AVRO"), body.get("references", ()))
            if words[2:]:
                return {"id": self.add(words[1], *given)}
            return self._look_up(words[1], *given)
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def _of_id(self, number: int, query: dict[str, list[str]]) -> Any:
        if number not in self._schemas:
            raise Refusal(404, 40403, f"Schema {number} not found")
        found = self._schemas[number]
        assert found["schemaType"] != "PROTOBUF" or query.get("format") in (None, ["serialized"])
        return _bare(found)

    def _version(self, subject: str, word: str) -> Any:
        versions = self._versions(subject)
        if word != "latest" and not re.fullmatch(r"[1-9][0-9]*", word):
            raise Refusal(422, 42202, f"The specified version '{word}' is not a valid version id")
        index = len(versions) if word == "latest" else int(word)
        if index > len(versions):
            raise Refusal(404, 40402, f"Version {word} not found.")
        number = versions[index - 1]
        return {"subject": subject, "version": index, "id": number, **_bare(self._schemas[number])}

    def _versions(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise Refusal(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _look_up(self, subject: str, text: str, kind: str, references: Any) -> Any:
        wanted = {"schema": text, "schemaType": kind, "references": [*references]}
        for index, number in enumerate(self._versions(subject), 1):
            if self._schemas[number] == wanted:
                return {"subject": subject, "version": index, "id": number, **_bare(wanted)}
        raise Refusal(404, 40403, "Schema not found")


def _bare(found: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as real registries do: the type AVRO and empty references are left out."""
    shown = {"schema": found["schema"]}
    if found["schemaType"] != "AVRO":
        shown["schemaType"] = found["schemaType"]
    return shown | ({"references": found["references"]} if found["references"] else {})


def _check_valid(found: dict[str, Any], others: list[str]) -> None:
    try:
        if found["schemaType"] == "PROTOBUF":
            raw = base64.b64decode(found["schema"], validate=True)
            descriptor_pb2.FileDescriptorProto.FromString(raw)
            return
        parsed = json.loads(found["schema"])
        if found["schemaType"] == "AVRO":
            named: dict[str, Any] = {}
            for one in others:
                fastavro.parse_schema(json.loads(one), named)
            fastavro.parse_schema(parsed, named)
    except Exception as error:
        raise Refusal(422, 42201, f"Invalid schema: {error}") from error


def _check_compatible(text: str, before: str) -> None:
    """Refuse a record with a field that is new and has no default, or has a narrower type (BACKWARD)."""
    new, old = json.loads(text), json.loads(before)
    if not all(isinstance(one, dict) and one["type"] == "record" for one in (new, old)):
        return
    types = {one["name"]: one["type"] for one in old["fields"]}
    for one in new["fields"]:
        is_missing = one["name"] not in types and "default" not in one
        if is_missing or (types.get(one["name"]), one["type"]) == ("long", "int"):
            raise Refusal(409, 409, f"Schema being registered is incompatible: {one['name']}")


class _Handler(BaseHTTPRequestHandler):
    registry: StandInRegistry

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        text = self.rfile.read(length)
        self.registry.requests.append(f"{self.command} {self.path}")
        try:
            self._send(200, self._body(text))
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)

    def _body(self, text: bytes) -> Any:
        registry, login = self.registry, self.headers.get("Authorization", "")
        if registry.failures > 0:
            registry.failures -= 1
            raise Refusal(500, 50001, "Error in the backend datastore")
        if status := registry.failing.get(self.path):
            raise Refusal(status, status, HTTPStatus(status).phrase)
        if login in registry.forbidden:
            raise Refusal(403, 40301, "User is denied operation Read on the subject")
        if registry.logins and login not in registry.logins:
            raise Refusal(401, 401, "Unauthorized")
        accepted = self.headers.get("Accept", "")
        if "schemaregistry" not in accepted and "*/*" not in accepted:
            raise Refusal(406, 406, "HTTP 406 Not Acceptable")
        if self.command == "POST" and self.headers.get("Content-Type") != CONTENT:
            raise Refusal(415, 415, "HTTP 415 Unsupported Media Type")
        return registry.answer(self.command, self.path, json.loads(text) if text else None)

    do_GET = do_POST = _answer  # noqa: N815

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    """A server whose clients may refuse its certificate."""

    def handle_error(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running_registry(
    registry: StandInRegistry | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[StandInRegistry]:
    """Yield a registry that answers on 127.0.0.1: a new one, or one that runs again at its address."""
    registry = registry or StandInRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    port = urlsplit(registry.url).port or 0
    with _Server(("127.0.0.1", port), handler) as server:
        registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        if tls:
            server.socket = tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
