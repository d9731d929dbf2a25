"""A blocking client of a schema registry, for the driver and for executors.

It uses the HTTP API that Confluent's registry defines and that Karapace and Apicurio have too:
https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from minikafka.base.errors import MinikafkaError
from minikafka.spark.registry.options import (
    CA,
    CERTIFICATE,
    KEY_PASSWORD,
    SCHEMA,
    SUBJECT,
    TOKEN,
    URL,
    USER,
    VERSION,
    RegistryAddress,
)
from minikafka.spark.wire.deadline import Deadline

_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPT: Final = f"{_CONTENT}, application/vnd.schemaregistry+json, application/json"
_TIMEOUT_SECONDS: Final = 30
RETRY_SECONDS: Final = 10.0
"""How long a request is sent again while no server of the registry answers."""
_UNKNOWN_AUTHORITY: Final = f"set {CA} to the PEM file of the authority that signed it"
_OTHER_NAME: Final = "name the registry as its certificate does"
_REMEDIES: Final = {10: "renew it, or check the clock", 62: _OTHER_NAME, 64: _OTHER_NAME}
"""What helps, by OpenSSL's code of the reason: expired, and another host name or IP address."""
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_SHOWN_MAX: Final = 160
_REFERENCES_MAX: Final = 200


class RegistryError(MinikafkaError):
    """The registry does not answer, or refuses a request; the text names the option and the remedy."""


class RegistryFailed(RegistryError):
    """The registry answers with an error of its own. `answer`: the status and its words."""

    def __init__(self, address: RegistryAddress, answer: str) -> None:
        super().__init__(
            f"{URL} {address}: {answer}; check the address, and that the registry runs"
        )
        self.answer = answer


class UnknownSchema(MinikafkaError):
    """The registry has no schema with this id."""


@dataclass(frozen=True)
class Schema:
    """A schema with the schemas that it refers to, each before those that refer to it.

    `text`: its text; for Protobuf the FileDescriptorProto in base64. `references`: pairs of the name by which a
    schema is referred to, and its text. `id`: its id in the registry, None if it has none.
    """

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    id: int | None = None


class _Response(NamedTuple):
    status: int
    body: Any


class RegistryClient:
    """Requests to one schema registry. Nothing is cached here, and no connection is kept."""

    def __init__(self, address: RegistryAddress) -> None:
        self._address = address

    def of_id(self, schema_id: int) -> Schema:
        """Return the schema with this id. Raises UnknownSchema, RegistryError."""
        response = self._get(f"/schemas/ids/{schema_id}")
        if response.status == 404 and _code(response) == _NO_SCHEMA:
            raise UnknownSchema(
                f"the registry {self._address} has no schema with the id {schema_id}"
            )
        return self._complete(self._object(response), schema_id)

    def of_subject(self, subject: str, version: int | None) -> Schema:
        """Return a version of a subject, or the latest. Raises RegistryError."""
        word = "latest" if version is None else str(version)
        response = self._get(f"/subjects/{quote(subject, safe='')}/versions/{word}")
        self._check_subject(response, subject, version)
        found = self._object(response)
        return self._complete(found, _number(found, "id"))

    def register(self, subject: str, schema_type: str, text: str) -> Schema:
        """Register a schema, unless the subject has it, and return it with its id. Raises RegistryError."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        response = self._request("POST", path, _body(schema_type, text))
        if response.status == 409:
            raise RegistryError(
                f"{SCHEMA}: it is not compatible with the versions of the subject {subject} in the registry"
                f" {self._address}{_detail(response)}; correct the schema, or alter the compatibility of the subject"
            )
        if response.status == 422:
            raise RegistryError(
                f"{SCHEMA}: the registry {self._address} refuses it{_detail(response)}; correct the schema"
            )
        return self.of_id(_number(self._object(response), "id"))

    def look_up(self, subject: str, schema_type: str, text: str) -> Schema:
        """Return a schema that the subject has, with its id. Raises RegistryError."""
        response = self._request(
            "POST", f"/subjects/{quote(subject, safe='')}", _body(schema_type, text)
        )
        if response.status == 404 and _code(response) == _NO_SCHEMA:
            raise RegistryError(
                f"{SCHEMA}: the subject {subject} of the registry {self._address} does not have it; register it, or"
                " set auto.register.schemas to true"
            )
        self._check_subject(response, subject, None)
        return self.of_id(_number(self._object(response), "id"))

    def _check_subject(self, response: _Response, subject: str, version: int | None) -> None:
        if response.status == 404 and _code(response) == _NO_SUBJECT:
            raise RegistryError(
                f"{SUBJECT}: the registry {self._address} has no subject {subject}; register a schema for it, or set"
                f" {SUBJECT} to another one, or {SCHEMA} to the text of a schema"
            )
        if response.status == 404 and _code(response) == _NO_VERSION:
            raise RegistryError(
                f"{VERSION}: the subject {subject} of the registry {self._address} has no version {version}; name"
                " another version, or latest"
            )

    def _complete(self, found: Mapping[str, Any], schema_id: int) -> Schema:
        """Return a schema with its references, each of which is requested."""
        references: dict[str, str] = {}
        kind = str(found.get("schemaType") or "AVRO")
        self._add_references(found, kind, references)
        return Schema(
            kind, self._text(found, kind, schema_id), tuple(references.items()), schema_id
        )

    def _add_references(
        self, found: Mapping[str, Any], kind: str, references: dict[str, str]
    ) -> None:
        for one in found.get("references") or ():
            name, subject = str(one.get("name")), str(one.get("subject"))
            if name in references:
                continue
            if len(references) >= _REFERENCES_MAX:
                raise RegistryError(f"{URL} {self._address}: a schema has too many references")
            version = _number(one, "version")
            response = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            self._check_subject(response, subject, version)
            other = self._object(response)
            self._add_references(other, kind, references)
            references[name] = self._text(other, kind, _number(other, "id"))

    def _text(self, found: Mapping[str, Any], kind: str, schema_id: int) -> str:
        """Return the text of a schema; for Protobuf its descriptor, which the registry compiles."""
        if kind == "PROTOBUF":
            found = self._compiled(schema_id)
        text = found.get("schema")
        if not isinstance(text, str):
            raise self._strange("an answer without a schema")
        return text

    def _compiled(self, schema_id: int) -> Mapping[str, Any]:
        """Return a Protobuf schema as the registry compiles it."""
        try:
            return self._object(self._get(f"/schemas/ids/{schema_id}?format=serialized"))
        except RegistryFailed as error:
            raise RegistryError(
                f"{URL} {self._address}: it cannot compile the Protobuf schema with the id {schema_id}: {error.answer};"
                " use a registry that answers format=serialized, such as Confluent's, or for files without references"
                " Karapace"
            ) from None

    def _object(self, response: _Response) -> Mapping[str, Any]:
        """Return the JSON object of a response with the status 200. Raises RegistryError for any other."""
        if response.status == 200 and isinstance(response.body, dict):
            return response.body
        raise self._strange(f"HTTP {response.status}{_detail(response)}")

    def _strange(self, answer: str) -> RegistryError:
        return RegistryError(
            f"{URL} {self._address}: {answer}; check that this is the address of a schema registry"
        )

    def _get(self, path: str) -> _Response:
        return self._request("GET", path)

    def _request(self, method: str, path: str, body: str | None = None) -> _Response:
        """Return the response of the first server that answers. Raises RegistryError."""
        deadline = Deadline(RETRY_SECONDS)
        while True:
            reason = answer = ""
            for url in self._address.urls:
                try:
                    response = self._sent(url, method, path, body)
                except (OSError, http.client.HTTPException) as error:
                    _check_certificates(url, error)
                    reason = f"no answer ({_reason(error)})"
                    continue
                if response.status in (401, 403):
                    raise self._refused(response.status)
                if response.status == 429 or response.status >= 500:
                    answer = f"HTTP {response.status}{_detail(response)}"
                    continue
                return response
            if deadline.wait_to_retry():
                continue
            if answer:
                raise RegistryFailed(self._address, answer)
            raise RegistryError(
                f"{URL} {self._address}: {reason}; check the address, and that the registry runs"
            )

    def _sent(self, url: str, method: str, path: str, body: str | None) -> _Response:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_SECONDS, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        headers = {"Accept": _ACCEPT}
        if body is not None:
            headers["Content-Type"] = _CONTENT
        if self._address.authorization:
            headers["Authorization"] = self._address.authorization
        try:
            _send(connection, method, parts.path + path, body, headers)
            response = connection.getresponse()
            return _Response(response.status, _parsed(response.read()))
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        at = self._address
        try:
            context = ssl.create_default_context(cafile=at.ca or None)
        except OSError as error:
            raise RegistryError(f"{CA} {at.ca}: {_reason(error)}; name a PEM file") from None
        try:
            if at.certificate:
                context.load_cert_chain(at.certificate, at.key or None, at.key_password)
        except OSError as error:
            raise RegistryError(
                f"{CERTIFICATE} {at.certificate}: {_reason(error)}; name a PEM file, the PEM file of its key, and"
                f" {KEY_PASSWORD} if the key is encrypted"
            ) from None
        return context

    def _refused(self, status: int) -> RegistryError:
        if not self._address.authorization:
            text = f"the registry needs a login (HTTP {status}); set {USER} or {TOKEN}"
        elif status == 401:
            option = TOKEN if self._address.authorization.startswith("Bearer") else USER
            text = f"the registry refuses the login (HTTP 401); check {option}: it may be wrong or expired"
        else:
            text = "the user has no right to this schema (HTTP 403); grant it, or log in as another user"
        return RegistryError(f"{URL} {self._address}: {text}")


def _send(connection: http.client.HTTPConnection, *request: Any) -> None:
    """Send a request. Raises the alert of a registry that has closed the connection, else the error of the socket.

    With TLS 1.3, a registry refuses the certificate of its client after the handshake.
    """
    try:
        connection.request(*request)
    except (ssl.SSLEOFError, ConnectionError):
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.recv(1)
        raise


def _check_certificates(url: str, error: Exception) -> None:
    """Raise RegistryError if the client or the registry has refused the certificate of the other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(error.verify_code, _UNKNOWN_AUTHORITY)
        raise RegistryError(
            f"{URL} {url}: its certificate is not valid ({error.verify_message}); {remedy}"
        ) from None
    if isinstance(error, ssl.SSLError) and "CERTIFICATE" in str(error.reason):
        raise RegistryError(
            f"{URL} {url}: it refuses the certificate of the client, or needs one ({error.reason}); set {CERTIFICATE}"
            " to one that the registry trusts"
        ) from None


def _body(schema_type: str, text: str) -> str:
    kind = {} if schema_type == "AVRO" else {"schemaType": schema_type}
    return json.dumps({"schema": text, **kind})


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _code(response: _Response) -> Any:
    return response.body.get("error_code") if isinstance(response.body, dict) else None


def _detail(response: _Response) -> str:
    """Return the registry's own words in brackets; "" if it gave none."""
    text = response.body.get("message") if isinstance(response.body, dict) else None
    words = " ".join(str(text or "").split())
    return f" ({words[:_SHOWN_MAX]})" if words else ""


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int):
        raise RegistryError(
            f"{URL}: an answer without {name}; check that this is a schema registry"
        )
    return value


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
