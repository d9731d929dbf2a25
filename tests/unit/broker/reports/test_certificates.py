"""When the certificates of a broker expire, as its report and its metric show it."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.encryption import Expiry
from minikafka.base.metrics import Metrics, prometheus_text
from minikafka.broker.reports.certificates import DAY_MS, NEAR_MS, CertificateReport
from minikafka.simulation.clocks import ManualClock


class Stores:
    """An encryption with these certificates."""

    def __init__(self, *expiries: Expiry) -> None:
        self.expiries: Sequence[Expiry] = expiries

    def refresh(self) -> bool:
        return False


def test_report_has_the_certificates_that_expire_within_thirty_days() -> None:
    clock = ManualClock()
    now = clock.wall_ms()
    near, gone = Expiry("a.p12", "CN=a", now + NEAR_MS), Expiry("ca.pem", "CN=old", now - DAY_MS)
    used = Stores(near, gone, Expiry("ca.pem", "CN=new", now + NEAR_MS + 1))
    report = CertificateReport(lambda: [used, Stores(near)], clock)
    assert report.near() == [near._asdict(), gone._asdict()]


def test_metric_has_the_time_that_is_left_for_the_first_certificate_of_each_file() -> None:
    clock = ManualClock()
    now = clock.wall_ms()
    used = Stores(
        Expiry("a.p12", "CN=a", now + 5 * DAY_MS),
        Expiry("a.p12", "CN=issuer", now + 9 * DAY_MS),
        Expiry("ca.pem", "CN=old", now - 3),
    )
    metrics = Metrics()
    CertificateReport(lambda: [used], clock).register(metrics)
    name = "kafka_server_kafkaserver_certificateexpiryms"
    lines = [line for line in "".join(prometheus_text(metrics)).splitlines() if line[0] != "#"]
    assert lines == [f'{name}{{file="a.p12"}} {5 * DAY_MS}', f'{name}{{file="ca.pem"}} -3']
