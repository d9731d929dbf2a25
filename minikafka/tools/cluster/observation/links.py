"""The broken links of the network, from the brokers' reports, as root causes.

Brokers exchange their reports, so one broker that answers also tells what the others see. Invariant: a cause states
what a broker has reported, and says so if nobody knows the way back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from minikafka.base.errors import KafkaError
from minikafka.broker.rpc.links import BrokenLink, LinkReport, reports_of

SETTLED_MS: Final = 2_000
"""A link that has failed for a shorter time is no cause: its end may just have started or stopped."""
FRESH_MS: Final = 15_000
"""A broker whose latest report is older does not reach the brokers that answer."""


class Broken(NamedTuple):
    """What one broker does not reach: another broker, or ZooKeeper (None). The oldest failure comes first."""

    source: int
    target: int | None
    links: tuple[BrokenLink, ...]

    @property
    def sentence(self) -> str:
        """The facts, for example: broker 1 cannot reach broker 2 at 10.0.0.2:9092 since 12:00:01 (no response)."""
        whom = "ZooKeeper" if self.target is None else f"broker {self.target}"
        return f"broker {self.source} cannot reach {whom} {self.where}"

    @property
    def where(self) -> str:
        """The addresses, the time of the first failure, and the latest reasons."""
        addresses = dict.fromkeys(link.address for link in self.links)
        errors = dict.fromkeys(link.error for link in self.links)
        since = self.links[0].since
        return f"at {' and '.join(addresses)} since {_clock(since)} ({', '.join(errors)})"


def latest_reports(answers: Iterable[Mapping[str, Any]]) -> dict[int, LinkReport]:
    """Return the latest report of each broker in these answers to `state` or `explain`."""
    found: dict[int, LinkReport] = {}
    for answer in answers:
        try:
            reports = reports_of(answer.get("links", {}))
        except KafkaError:
            continue
        for id_, report in reports.items():
            if id_ not in found or report.age_ms < found[id_].age_ms:
                found[id_] = report
    return found


def broken_links(reports: Mapping[int, LinkReport], away: Collection[int]) -> list[Broken]:
    """Return the links that do not work, without those from and to brokers that are known to be `away`."""
    found = []
    for source, report in sorted(reports.items()):
        by_target: defaultdict[int | None, list[BrokenLink]] = defaultdict(list)
        for link in sorted(report.links, key=lambda link: link.since):
            if link.for_ms >= SETTLED_MS and not {source, link.to} & {*away}:
                by_target[link.to].append(link)
        found += [Broken(source, target, tuple(links)) for target, links in by_target.items()]
    return found


def link_sentences(
    broken: Iterable[Broken], reports: Mapping[int, LinkReport]
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the facts about each pair with a broken link, with the brokers that it concerns."""
    links = {(one.source, one.target): one for one in broken}
    unreached = _unreached(links, reports)
    for broker, sources in unreached.items():
        yield (broker, *sources), _nobody_reaches(broker, [links[s, broker] for s in sources])
    for (source, target), one in links.items():
        if target is None:
            yield (source,), one.sentence
        elif target not in unreached and (source not in unreached or target not in reports):
            back = links.get((target, source))
            if back is None:
                yield (source, target), f"{one.sentence}; {_way_back(one, reports.get(target))}"
            elif source < target:
                both = f"brokers {source} and {target} cannot reach each other"
                yield (
                    (source, target),
                    f"{both}: broker {source} {_tries(one)}; broker {target} {_tries(back)}",
                )


def _unreached(
    links: Mapping[tuple[int, int | None], Broken], reports: Mapping[int, LinkReport]
) -> dict[int, list[int]]:
    """Return the brokers that no broker with a fresh report reaches, each with those that have tried."""
    fresh = {id_ for id_, report in reports.items() if report.age_ms < FRESH_MS}
    found = {}
    for target in sorted({to for _, to in links if to is not None} - fresh):
        sources = sorted(source for source, to in links if to == target and source in fresh)
        if sources and fresh <= {*sources}:
            found[target] = sources
    return found


def _nobody_reaches(broker: int, tried: list[Broken]) -> str:
    errors = {link.error for one in tried for link in one.links}
    why = "its host or its network is down"
    if errors == {"connection refused"}:
        why = "its host answers, but the broker does not run there"
    attempts = "; ".join(f"broker {one.source} tries {one.where}" for one in tried)
    return f"no broker reaches broker {broker}: {why}; {attempts}"


def _way_back(one: Broken, report: LinkReport | None) -> str:
    """Return what is known about the other direction. It works if a call has been answered since the failure began."""
    if report is None:
        return f"broker {one.target} has told nobody whether the way back works"
    if report.age_ms >= FRESH_MS:
        return f"broker {one.target} has not reported for {report.age_ms // 1000} s whether the way back works"
    reached_ms = report.reached_ms.get(one.source)
    if reached_ms is not None and reached_ms < one.links[0].for_ms:
        return f"the way back, from broker {one.target} to broker {one.source}, works"
    return "it is not known yet whether the way back works"


def _tries(one: Broken) -> str:
    return f"tries {one.where}"


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S")
