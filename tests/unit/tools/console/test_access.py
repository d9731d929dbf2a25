"""Who may use the console."""

from __future__ import annotations

import pytest

from minikafka.tools.console.access import check_origin, check_token
from minikafka.tools.console.errors import RequestRefused


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000"])
def test_page_of_the_console_itself_is_admitted(host: str) -> None:
    check_origin({"Host": host}, 8000)
    check_origin({"Host": host, "Origin": f"http://{host}"}, 8000)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "evil.example:8000"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:8001"},
        {"Host": "127.0.0.1:8000", "Origin": "http://evil.example"},
        {"Host": "127.0.0.1:8000", "Origin": "null"},
        {"Host": "127.0.0.1:8000", "Origin": "https://127.0.0.1:8000"},
        {"Host": "127.0.0.1:8000", "Origin": "http://localhost:8000"},
    ],
)
def test_another_host_or_origin_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_origin(headers, 8000)
    assert refused.value.status == 403


@pytest.mark.parametrize(("given", "status"), [(None, 401), ("", 401), ("x", 403), ("tökén", 403)])
def test_request_without_the_token_is_refused(given: str | None, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_token(given, "token")
    assert refused.value.status == status
    check_token("token", "token")
