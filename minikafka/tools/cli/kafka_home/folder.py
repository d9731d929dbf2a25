"""The files of a folder like an unpacked Kafka distribution: scripts, configuration files, and the names of its jars.

Every script starts `kafka-run-class.sh` with the class that Kafka's script of this name starts. That script alone
knows the interpreter, and passes the class to `minikafka kafka-tool`.
"""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from minikafka.tools.cli.kafka_home.tables import CLASSES, KAFKA, ZOOKEEPER
from minikafka.tools.cli.kafka_home.version import HOME, KAFKA_VERSION, SCALA_VERSION

RUN_CLASS: Final = "bin/kafka-run-class.sh"
_RUN_CLASS: Final = """\
#!/bin/sh
# Runs a class of Kafka's distribution in minikafka. Made by `minikafka kafka-home`.
if [ $# -eq 0 ]; then
  echo "USAGE: $0 [-daemon] [-name servicename] [-loggc] classname [opts]"
  exit 1
fi
home=$(cd "$(dirname "$0")/.." && pwd)
LOG_DIR=${{LOG_DIR:-$home/logs}}
name=kafka
daemon=
while :; do
  case $1 in
    -name) name=$2; shift 2 ;;
    -loggc) shift ;;
    -daemon) daemon=1; shift ;;
    *) break ;;
  esac
done
if [ -n "$KAFKA_LOG4J_OPTS" ] || [ -n "$daemon" ]; then mkdir -p "$LOG_DIR"; fi
# The variables have several words each.
set -- -P -m minikafka kafka-tool ${{KAFKA_HEAP_OPTS}} ${{KAFKA_JVM_PERFORMANCE_OPTS}} ${{KAFKA_GC_LOG_OPTS}} \\
  ${{KAFKA_JMX_OPTS}} "-Dkafka.logs.dir=$LOG_DIR" ${{KAFKA_LOG4J_OPTS}} "-D{home}=$home" \\
  "-Djava.class.path=$home/libs/*" ${{KAFKA_OPTS}} "$@"
if [ -n "$daemon" ]; then
  nohup {python} "$@" > "$LOG_DIR/$name.out" 2>&1 < /dev/null &
else
  exec {python} "$@"
fi
"""
_TOOL: Final = """\
#!/bin/sh
exec "$(dirname "$0")/kafka-run-class.sh" {main_class}{fixed} "$@"
"""
_START: Final = """\
#!/bin/sh
if [ $# -eq 0 ]; then
  echo "USAGE: $0 {usage}"
  exit 1
fi
bin=$(dirname "$0")
export KAFKA_LOG4J_OPTS="${{KAFKA_LOG4J_OPTS:--Dlog4j.configuration=file:$bin/../config/log4j.properties}}"
daemon=
if [ "$1" = -daemon ]; then
  daemon=-daemon
  shift
fi
exec "$bin/kafka-run-class.sh" $daemon ${{EXTRA_ARGS--name {name} -loggc}} {main_class} "$@"
"""
_STOP: Final = """\
#!/bin/sh
# Ends the processes that the scripts of this folder have started, with SIGTERM or the signal in SIGNAL.
if [ $# -ne 0 ]; then
  echo "USAGE: $0; --process-role and --node-id need KRaft, which minikafka does not have" >&2
  exit 1
fi
home=$(cd "$(dirname "$0")/.." && pwd)
pids=$(ps axww | grep -F -- "-D{home}=$home " | grep -F ' {main_class} ' | grep -v grep | awk '{{print $1}}')
if [ -z "$pids" ]; then
  echo "No {what} server to stop"
  exit 1
fi
kill -s "${{SIGNAL:-TERM}}" $pids
"""
_SERVER: Final = """\
# A broker. Keys of Kafka, and those of docs/configuration.md.

############################# Server Basics #############################

broker.id=0

############################# Socket Server Settings #############################

#listeners=PLAINTEXT://:9092

#advertised.listeners=PLAINTEXT://your.host.name:9092

#listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL

socket.request.max.bytes=104857600

############################# Log Basics #############################

log.dirs=/tmp/kafka-logs

num.partitions=1

############################# Internal Topic Settings #############################

offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

############################# Log Retention Policy #############################

log.retention.hours=168

#log.retention.bytes=1073741824

#log.segment.bytes=1073741824

log.retention.check.interval.ms=300000

############################# Zookeeper #############################

zookeeper.connect=localhost:2181

zookeeper.connection.timeout.ms=18000

############################# Group Coordinator Settings #############################

group.initial.rebalance.delay.ms=0
"""
_ZOOKEEPER: Final = """\
# A ZooKeeper server.
dataDir=/tmp/zookeeper
clientPort=2181
maxClientCnxns=0
admin.enableServer=false
"""
_LOG4J: Final = """\
# The root logger and its appenders have an effect, with this layout.
log4j.rootLogger=INFO, stdout, kafkaAppender

log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n

log4j.appender.kafkaAppender=org.apache.log4j.FileAppender
log4j.appender.kafkaAppender.File=${kafka.logs.dir}/server.log
log4j.appender.kafkaAppender.layout=org.apache.log4j.PatternLayout
log4j.appender.kafkaAppender.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_TOOLS_LOG4J: Final = """\
log4j.rootLogger=WARN, stderr

log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.stderr.Target=System.err
"""
CONFIGS: Final = {
    "config/server.properties": _SERVER,
    "config/zookeeper.properties": _ZOOKEEPER,
    "config/producer.properties": "bootstrap.servers=localhost:9092\ncompression.type=none\n",
    "config/consumer.properties": "bootstrap.servers=localhost:9092\ngroup.id=test-consumer-group\n",
    "config/log4j.properties": _LOG4J,
    "config/tools-log4j.properties": _TOOLS_LOG4J,
}
"""The files that a user may edit, by their paths in the folder."""
_LIBS: Final = "These jars have the names that programs look for to find the version. They contain no classes.\n"
_JARS: Final = (
    f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}.jar",
    *(
        f"{name}-{KAFKA_VERSION}.jar"
        for name in ("kafka-clients", "kafka-server", "kafka-server-common", "kafka-tools")
    ),
)
_VERSION_FILE: Final = "kafka/kafka-version.properties"


def scripts(python: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each script. `python`: the interpreter that has minikafka."""
    yield RUN_CLASS, _RUN_CLASS.format(python=shlex.quote(python), home=HOME)
    servers = (
        ("kafka", KAFKA, "kafkaServer", "[-daemon] server.properties [--override property=value]*"),
        ("zookeeper", ZOOKEEPER, "zookeeper", "[-daemon] zookeeper.properties"),
    )
    for what, main_class, name, usage in servers:
        yield (
            f"bin/{what}-server-start.sh",
            _START.format(usage=usage, name=name, main_class=main_class),
        )
        yield (
            f"bin/{what}-server-stop.sh",
            _STOP.format(home=HOME, main_class=main_class, what=what),
        )
    for main_class, tool in CLASSES.items():
        if tool.script:
            fixed = f" {tool.fixed}" if tool.fixed else ""
            yield f"bin/{tool.script}", _TOOL.format(main_class=main_class, fixed=fixed)


def jars() -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file in `libs`."""
    yield "libs/README", _LIBS.encode()
    for name in _JARS:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as jar:
            jar.writestr(_dated("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\r\n\r\n")
            version = f"commitId=minikafka\nversion={KAFKA_VERSION}\n"
            jar.writestr(_dated(_VERSION_FILE), version)
        yield f"libs/{name}", content.getvalue()


def _dated(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def is_home(directory: Path) -> bool:
    """True if `kafka-home` has made the directory."""
    script = directory / RUN_CLASS
    return script.is_file() and HOME in script.read_text("utf-8", errors="replace")
