"""The authorizer decides as Kafka's own AclAuthorizer, in thousands of random cases.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from support.clusters.apache_kafka import needs_kafka, run_java
from support.security.acl_cases import Case, answer, random_case

PROGRAM = Path(__file__).parent.parent / "support" / "java" / "Authorization.java"
pytestmark = needs_kafka


def lines_of(case: Case) -> list[str]:
    rows = [["new", ";".join(case.super_users), str(case.allow_if_no_acl).lower()]]
    for (kind, name, pattern), entry in case.bindings:
        principal, host, operation, permission = entry
        rows.append(["acl", kind.name, name, pattern.name, principal, host])
        rows[-1] += [operation.name, permission.name]
    for principal, host, operation, kind, asked in case.questions:
        row = [principal, host, operation.name, kind.name]
        rows.append(["any", *row] if asked is None else ["one", *row, asked])
    return ["\t".join(row) for row in rows]


async def test_authorizer_decides_2000_random_questions_as_kafkas_acl_authorizer(
    tmp_path: Path,
) -> None:
    rng = Random(51)
    cases = [random_case(rng, questions=8) for _ in range(400)]
    file = tmp_path / "cases"
    file.write_text("".join(f"{line}\n" for case in cases for line in lines_of(case)))

    kafka = (await run_java(PROGRAM, str(file))).split()
    asked = [(case, question) for case in cases for question in case.questions]
    ours = [answer(case.authorizer(), question) for case, question in asked]

    assert len(kafka) == len(asked) == 3_200
    differing = [
        (question, case.bindings, theirs)
        for (case, question), theirs, own in zip(asked, kafka, ours, strict=True)
        if (theirs == "ALLOWED") != own
    ]
    assert differing == []
    assert 0.2 < sum(ours) / len(ours) < 0.8
