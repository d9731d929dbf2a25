"""`users add`."""

from __future__ import annotations

import click

import minikafka.client.administration.scram_admin as scram_admin
import minikafka.runtime.clock as clocks
from minikafka.security.scram import BY_NAME, MAX_ITERATIONS, MIN_ITERATIONS
from minikafka.tools.cli.arguments.options import EXISTING_FILE, client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.users.options import mechanism_option, report
from minikafka.tools.cli.users.password import read_password


@click.command()
@click.argument("user")
@mechanism_option("SCRAM mechanism (default: SCRAM-SHA-512); may be repeated.", "SCRAM-SHA-512")
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    metavar="N",
    help="Iterations of the hash: more make it slower to guess a password.",
)
@click.option(
    "--password-file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="File with the password in its first line (default: a prompt, or standard input).",
)
@client_options
def add(user: str, mechanisms: tuple[str, ...], iterations: int, password_file: str | None) -> None:
    """Create USER, or give it another password.

    The password is asked for, or read from the first line of standard input or of a file.
    """
    password = read_password(password_file)
    rng = clocks.SystemRng()
    written = [
        scram_admin.new_password(
            user, BY_NAME[name], password, iterations, rng.bytes(scram_admin.SALT_BYTES)
        )
        for name in dict.fromkeys(mechanisms)
    ]
    outcomes = run_with_client(lambda client: client.users.alter(written))
    report(outcomes, f"{{}} can log in with {', '.join(dict.fromkeys(mechanisms))}.")
