"""The Dockerfile and the Compose file, as linters and parsers of others read them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.base.config import BrokerConfig
from minikafka.tools.cli.generate.compose import BROKERS, broker_config
from minikafka.tools.cli.main import commands

SECRET = "0123456789abcdef"
VARIABLE = "${MINIKAFKA_SECRET:?write MINIKAFKA_SECRET=... into .env}"


def generated(name: str) -> str:
    return CliRunner().invoke(commands, ["generate", name], catch_exceptions=False).stdout


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = generated("dockerfile").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_image_is_made_of_the_wheel_and_uses_no_shell() -> None:
    made = instructions()
    wheel = f"minikafka-{version('minikafka')}-py3-none-any.whl"
    assert ("COPY", f"dist/{wheel} /tmp/") in made
    for name, arguments in made:
        if name in ("RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK"):
            words = json.loads(arguments[arguments.index("[") :])
            assert all(isinstance(word, str) for word in words)


def test_process_of_the_image_is_a_user_without_rights_and_stops_by_sigterm() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last["VOLUME"]) == [last["WORKDIR"]]
    command = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
    assert command == ["minikafka", "broker", "--config", "/etc/minikafka/broker.toml"]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    text = generated("dockerfile")
    done = subprocess.run(["hadolint", "-"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_brokers_of_the_compose_file_have_a_complete_configuration() -> None:
    text = generated("compose")
    for broker_id in BROKERS:
        shown = broker_config(broker_id, VARIABLE)
        assert shown in re.sub(r"^ {6}", "", text, flags=re.MULTILINE)
        config = BrokerConfig.parse(broker_config(broker_id, SECRET))
        addresses = {str(item) for item in config.endpoints.advertised}
        assert f"INTERNAL://broker-{broker_id}:9092" in addresses
        assert f"CONTROLLER://broker-{broker_id}:9093" in addresses


def test_compose_file_has_volumes_health_and_time_to_stop_of_every_server() -> None:
    yaml = pytest.importorskip("yaml", reason="no parser of YAML is installed")
    made = yaml.safe_load(generated("compose"))
    services = made["services"]
    assert list(services) == ["zookeeper", "broker-1", "broker-2", "broker-3"]
    for name, service in services.items():
        [volume] = service["volumes"]
        assert volume == f"{name}:/var/lib/minikafka"
        assert name in made["volumes"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
    assert services["zookeeper"]["healthcheck"]["test"][0] == "CMD"
    broker = services["broker-2"]
    assert broker["stop_grace_period"] == "161s"
    assert broker["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}
    assert made["configs"]["broker-2"]["content"] == broker_config(2, VARIABLE)


def has_compose() -> bool:
    docker = shutil.which("docker")
    return (
        docker is not None
        and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0
    )


def test_docker_compose_reads_the_file_and_demands_the_secret(tmp_path: Path) -> None:
    if not has_compose():
        pytest.skip("docker compose is not installed")
    (tmp_path / "compose.yaml").write_text(generated("compose"))
    command = ["docker", "compose", "config", "--quiet"]
    bare = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "write MINIKAFKA_SECRET=... into .env" in bare.stderr
    (tmp_path / ".env").write_text(f"MINIKAFKA_SECRET={SECRET}\n")
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
