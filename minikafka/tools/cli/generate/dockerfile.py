"""`generate dockerfile`: an image with the wheel of this version, whose process is a user without rights."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import click

from minikafka.tools.cli.generate.output import output_option, write

USER_ID: Final = 10_001
_FILE: Final = """\
# Dockerfile, made by `minikafka generate dockerfile`. The wheel is that of `python -m build`:
#   docker build --tag minikafka:{version} .
#   docker run --volume ./broker.toml:/etc/minikafka/broker.toml:ro --volume data:/var/lib/minikafka minikafka:{version}
# A broker listens at 0.0.0.0:9092, and log.dirs is a directory below /var/lib/minikafka. Its log is standard output.
FROM python:3.13-slim AS build
COPY dist/minikafka-{version}-py3-none-any.whl /tmp/
RUN ["python", "-m", "pip", "install", "--no-cache-dir", "--root", "/made", \\
     "/tmp/minikafka-{version}-py3-none-any.whl"]

FROM python:3.13-slim
COPY --from=build /made /
RUN ["useradd", "--uid", "{user}", "--create-home", "--skel", "/nonexistent", \\
     "--home-dir", "/var/lib/minikafka", "--shell", "/usr/sbin/nologin", "minikafka"]
USER {user}:{user}
WORKDIR /var/lib/minikafka
VOLUME ["/var/lib/minikafka"]
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s \\
  CMD ["minikafka", "topics", "list", "--bootstrap", "127.0.0.1:9092", "--timeout", "5"]
ENTRYPOINT ["minikafka"]
CMD ["broker", "--config", "/etc/minikafka/broker.toml"]
"""


@click.command()
@output_option
def dockerfile(output: str | None) -> None:
    """Print a Dockerfile that installs minikafka's wheel, and runs a broker as a user without rights.

    A stop of the container is a controlled shutdown: give it the time, for example by `docker stop --time 160`. If the
    listener at port 9092 demands a login, replace HEALTHCHECK.
    """
    write(_FILE.format(version=version("minikafka"), user=USER_ID), output)
