"""Builds the sdist and the wheel, and starts clusters from the wheel as users do. Needs a package index.

    scripts/check-wheel [--platforms]

`python -m build` and `twine check` must succeed, `pipx run` and `uvx` must start a cluster that keeps a record, and the
steps of the generated Dockerfile must succeed in a new environment. The files for GitHub Actions and GitLab in
docs/testing.md must fit the schemas of these services, and their commands must succeed in a new environment and a
project with the page's first tests. With --platforms, no wheel is built: a table shows which pinned dependencies have
a wheel for each platform and version of Python.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import endings
from ci_files import GITHUB, GITLAB, ci_files, commands, tutorial_files

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "glibc, x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    "glibc, aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64"),
    "musl, x86_64": ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64"),
    "musl, aarch64": ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64"),
}
SCHEMAS = {GITHUB: "vendor.github-workflows", GITLAB: "vendor.gitlab-ci"}
"""The schema of each file for continuous integration, by the names of check-jsonschema."""


def main() -> bool:
    with tempfile.TemporaryDirectory(prefix="minikafka-wheel-") as name:
        directory = Path(name)
        if "--platforms" in sys.argv[1:]:
            show_platforms(directory)
            return True
        tools = new_environment(directory / "tools", "build", "twine", "pipx", "uv")
        built = directory / "dist"
        run(str(tools / "python"), "-m", "build", "--outdir", str(built), str(ROOT))
        run(str(tools / "twine"), "check", "--strict", *map(str, built.iterdir()))
        [wheel] = built.glob("*.whl")
        os.environ |= {"PIPX_HOME": name, "UV_TOOL_DIR": name}
        start_cluster(directory, str(tools / "pipx"), "run", "--spec", str(wheel), "minikafka")
        start_cluster(directory, str(tools / "uvx"), "--from", str(wheel), "minikafka")
        follow_dockerfile(directory, wheel)
        for path in SCHEMAS:
            follow_ci_file(directory, wheel, path)
    print("the wheel can be published")
    return True


def run(*command: str, cwd: Path = ROOT, records: str = "") -> str:
    print("$", *command, flush=True)
    done = subprocess.run(
        command, check=False, cwd=cwd, input=records, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


def new_environment(directory: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages; return the directory of its programs."""
    venv.create(directory, with_pip=True)
    if packages:
        run(str(directory / "bin/pip"), "install", "--quiet", *packages)
    return directory / "bin"


def start_cluster(directory: Path, *minikafka: str) -> None:
    """Start a cluster, write and read a record, and stop the cluster."""
    data = tempfile.mkdtemp(dir=directory)
    run(*minikafka, "up", "--port", "0", "--data", data)
    try:
        run(*minikafka, "produce", "events", "--acks", "all", "--data", data, records="hello\n")
        assert run(*minikafka, "consume", "events", "--exit", "--data", data) == "hello\n"
    finally:
        run(*minikafka, "down", "--data", data)


def follow_dockerfile(directory: Path, wheel: Path) -> None:
    """Carry out the steps of the image that need no other root directory: the installation, and the entry point."""
    environment = new_environment(directory / "image", "pip")
    text = run(sys.executable, "-m", "minikafka", "generate", "dockerfile").replace("\\\n", "")
    steps = re.findall(r'^RUN (\["python".*)$', text, re.MULTILINE)
    for step in steps:
        words = [word.replace("/tmp", str(wheel.parent)) for word in json.loads(step)]
        at = words.index("--root")
        run(str(environment / words[0]), *words[1:at], *words[at + 2 :])
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    start_cluster(directory, *(str(environment / word) for word in json.loads(entry)))


def follow_ci_file(directory: Path, wheel: Path, path: str) -> None:
    """Check a file of docs/testing.md against the schema of its service, and run its commands as the service does."""
    project = directory / path.replace("/", "-")
    project.mkdir()
    for name, text in (tutorial_files() | {"ci.yml": ci_files()[path]}).items():
        if name in ("orders.py", "test_orders.py", "ci.yml"):
            (project / name).write_text(text)
    needed = (str(wheel), "confluent-kafka", "pytest", "pytest-xdist")
    (project / "requirements.txt").write_text("\n".join(needed) + "\n")
    schemas = new_environment(project / "schemas", "check-jsonschema")
    check = ("--builtin-schema", SCHEMAS[path], str(project / "ci.yml"))
    run(str(schemas / "check-jsonschema"), *check)
    programs = new_environment(project / "environment")
    for command in commands(path):
        run("env", f"PATH={programs}:{os.environ['PATH']}", "sh", "-ec", command, cwd=project)


def show_platforms(directory: Path) -> None:
    """Print the pinned dependencies that lack a wheel, for each version of Python and each platform."""
    tools = new_environment(directory / "tools", "packaging")
    lock = (ROOT / "requirements/base.lock").read_text()
    pins = re.findall(r"^([a-z0-9.-]+==[^ ]+)(?: ; ([^\\]*))?", lock, re.MULTILINE)
    for python in PYTHONS:
        needed = [pin for pin, marker in pins if python != "3.14" or "3.14" not in marker]
        for platform in PLATFORMS:
            lacking = without_wheel(tools, directory, needed, python, platform)
            print(
                f"Python {python}, {platform}: {', '.join(lacking) or 'all have wheels'}",
                flush=True,
            )


def without_wheel(
    tools: Path, directory: Path, pins: list[str], python: str, platform: str
) -> list[str]:
    """Return the packages that have no wheel. pip names one at a time."""
    platforms = [f"--platform={name}" for name in PLATFORMS[platform]]
    only = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command = [str(tools / "pip"), "download", "-q", *only, *platforms, "-d", str(directory)]
    lacking: list[str] = []
    while True:
        rest = [pin for pin in pins if pin not in lacking]
        done = subprocess.run([*command, *rest], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return lacking
        found = re.search(r"No matching distribution found for ([^ \n]+)", done.stderr)
        if found is None or found[1] not in rest:
            raise RuntimeError(done.stderr)
        lacking.append(found[1])


if __name__ == "__main__":
    endings.run("check-wheel", main)
