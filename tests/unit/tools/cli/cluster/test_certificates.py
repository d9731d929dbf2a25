"""The notes of `cluster health` about certificates that expire."""

from __future__ import annotations

from minikafka.broker.reports.certificates import DAY_MS
from minikafka.tools.cli.cluster.certificates import certificate_notes

NOW = 1_700_000_000_000
"""2023-11-14."""


def answer(*expiries: tuple[str, int]) -> dict[str, object]:
    found = [{"source": source, "subject": "CN=b", "ends_ms": ends} for source, ends in expiries]
    return {"certificates": found}


def test_note_names_the_file_and_the_brokers_and_the_day() -> None:
    same = answer(("/b.p12", NOW + 12 * DAY_MS + 5))
    assert certificate_notes({2: same, 1: same, 3: answer()}, NOW) == [
        "the certificate CN=b in /b.p12 expires in 12 days, on 2023-11-26 (brokers 1, 2); replace it, which needs no "
        "restart"
    ]


def test_note_of_the_certificate_that_expires_first_comes_first() -> None:
    found = answer(("/b.p12", NOW + DAY_MS), ("/ca.pem", NOW))
    [expired, near] = certificate_notes({1: found}, NOW)
    assert expired.startswith("the certificate CN=b in /ca.pem expired on 2023-11-14 (broker 1);")
    assert near.startswith("the certificate CN=b in /b.p12 expires within two days, on 2023-11-15")


def test_certificate_in_the_configuration_needs_a_restart() -> None:
    [note] = certificate_notes({1: answer(("ssl.truststore.certificates", NOW))}, NOW)
    assert note.endswith("(broker 1); change its value and restart")


def test_broker_of_an_older_version_reports_no_certificates() -> None:
    assert certificate_notes({1: {}}, NOW) == []
