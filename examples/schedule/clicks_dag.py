"""Airflow 3 runs the pipeline every five minutes; the next task gets its summary."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag, task

PLACE = "/srv/clicks"


@dag(
    schedule="*/5 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # the checkpoint belongs to one run at a time
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
)
def clicks_per_user() -> None:
    """Count slow clicks, then check what the run has read."""
    run = BashOperator(
        task_id="run",
        bash_command="./run-pipeline clicks.toml --bootstrap kafka-1:9092 --command-config client.properties"
        " && tail -n 1 clicks.toml.runs",
        cwd=PLACE,
        env={"PATH": f"{PLACE}/.venv/bin:/usr/bin:/bin"},
        append_env=True,
        skip_on_exit_code=75,  # another run still goes on
        do_xcom_push=True,  # the last line of the output: the summary
    )

    @task
    def check(summary: str) -> None:
        found = json.loads(summary)
        if not found["ok"] or found["malformed"]:
            raise ValueError(
                f"{found['malformed']} of {found['records_read']} records are malformed"
            )

    check(run.output)


clicks_per_user()
