"""Checks a change, or runs the tests of some folders.

    scripts/test [--quick] [PYTEST OPTIONS…]      all checks: format, lint, imports, types, and every test
    scripts/test FOLDER… [PYTEST OPTIONS…]        only the tests of these folders, with none of the other checks
    scripts/test --list                           the folders, what their tests need, and how long they usually take

FOLDER is a folder or file below `tests/`, or `FILE::TEST`. The end of its path is enough if no other path has this end,
and folders in its middle may be left out: `unit/storage/log`, `storage/log`, `log/test_recovery.py`.
Folders come before the options of pytest.

--quick   skip the tests that start servers
-k WORD, -x, --lf, -n 0 and all other options are pytest's

Examples:
    scripts/test unit/log
    scripts/test log/test_recovery.py -k torn -x

The first run creates the environment in .venv. Folders that need neither Spark nor Java do without these two.
Exit codes: 0 all passed, 1 a check or a test failed, 4 wrong arguments, 5 no test was selected, 130 interrupted.

This module uses only the standard library, because it runs before the environment exists.
"""

from __future__ import annotations

import difflib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
TOOLS = ROOT / ".venv" / "bin"
CHECKS = (
    (("ruff", "format", "--check", "--quiet", "."), "run .venv/bin/ruff format ."),
    (("ruff", "check", "--quiet", "."), "run .venv/bin/ruff check --fix . and mend the rest"),
    (
        ("lint-imports", "--no-cache", "--no-logo"),
        "a package imports what pyproject.toml does not allow",
    ),
    (("mypy",), "mend the types that it names"),
)
"""The static checks, each with the advice that is printed when it fails."""
QUICK = tuple(
    f"--ignore=tests/{folder}" for folder in ("conformance", "cluster", "clients", "spark")
)
WORKERS = ("-n", "5", "--dist", "loadfile", "--no-loadscope-reorder")
"""Five workers for two cores, because many tests wait for servers. Each file runs on one worker. The files start in
the order of collection, so that long files start first; one worker begins at the end (tests/conftest.py)."""
FILES_OF_ONE_PROCESS = 30
"""A selection of at most this many files runs without workers, whose start takes longer than they would save."""
LARGE = {"Spark", "Java"}
"""Needs that only the whole environment meets."""
USAGE_ERROR = 4
INTERRUPTED = 130


class WrongArguments(Exception):
    """A path names no tests, or tests in several places, or pytest does not know an option."""


def folders() -> dict[str, dict[str, Any]]:
    """Return the rows of tests/folders.toml by folder."""
    return tomllib.loads((TESTS / "folders.toml").read_text())


def row_of(path: str, rows: Iterable[str]) -> str:
    """Return the row that holds for a path below `tests`: the longest one that the path is in."""
    return max((row for row in rows if f"{path}/".startswith(f"{row}/")), key=len, default=".")


def test_files() -> list[str]:
    """Return the paths of all test files, relative to `tests`."""
    return sorted(file.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py"))


def resolve(argument: str, files: Sequence[str]) -> str:
    """Return the path below `tests` that the argument names; raise WrongArguments with the closest ones."""
    wanted, _, test = argument.partition("::")
    wanted = f"{wanted.rstrip('/')}/".removeprefix("./").removeprefix(f"{ROOT}/")
    wanted = wanted.removeprefix("tests/").rstrip("/") or "."
    paths = {*files, *(str(parent) for file in files for parent in Path(file).parents)}
    found = [path for path in sorted(paths) if f"/{path}".endswith(f"/{wanted}")]
    if wanted in found:
        found = [wanted]
    found = found or [path for path in sorted(paths) if is_shortened(wanted, path)]
    if len(found) != 1:
        names = {Path(path).name for path in paths}
        like = difflib.get_close_matches(Path(wanted).name, names, n=3, cutoff=0.8)
        close = found or [path for path in sorted(paths) if Path(path).name in like]
        problem = "names several paths" if found else "names no folder or file of tests"
        advice = ". Name one: " + ", ".join(close) if close else ". scripts/test --list names all"
        raise WrongArguments(f"{argument!r} {problem}{advice}")
    return f"{found[0]}::{test}" if test else found[0]


def is_shortened(wanted: str, path: str) -> bool:
    """True if `wanted` has the last name of the path, after some of its other names in their order."""
    *folders, last = path.split("/")
    *wanted_folders, wanted_last = wanted.split("/")
    rest = iter(folders)
    return last == wanted_last and all(folder in rest for folder in wanted_folders)


def needs_of(paths: Iterable[str], files: Iterable[str]) -> set[str]:
    """Return what the tests of these paths need, by tests/folders.toml."""
    rows = folders()
    plain = [path.partition("::")[0] for path in paths]
    used = {row_of(file, rows) for file in files if is_selected(file, plain)}
    return {need for row in used for need in rows[row].get("needs", ())}


def is_selected(file: str, paths: Iterable[str]) -> bool:
    return any(path == "." or f"{file}/".startswith(f"{path}/") for path in paths)


def listing(rows: Mapping[str, Mapping[str, Any]], files: Sequence[str]) -> str:
    """Return a table of the folders: number of test files, needs and usual time."""
    homes = [row_of(file, rows) for file in files]
    lines = [("folder", "files", "usual time", "needs")]
    for name, row in rows.items():
        needs = ", ".join(row.get("needs", ()))
        lines.append((name, str(homes.count(name)), f"{row['seconds']} s", needs))
    wide = max(map(len, rows))
    return "\n".join(
        f"{name:{wide}}  {count:>5}  {time:>10}  {needs}".rstrip()
        for name, count, time, needs in lines
    )


def check(options: Sequence[str]) -> None:
    """Run the static checks, while one process compiles the tests; exit with 1 at the first that fails.

    Without the compilation, each worker of pytest would compile all tests. `options`: those of pytest, which ends
    early if it does not know them.
    """
    collect = [TOOLS / "python", "-m", "pytest", "--collect-only", "-q", *options]
    silent = subprocess.DEVNULL
    with subprocess.Popen(collect, stdout=silent, stderr=silent) as compiling:
        try:
            for (tool, *words), advice in CHECKS:
                ended = subprocess.run([TOOLS / tool, *words], stdout=subprocess.PIPE, check=False)
                lines = ended.stdout.decode().splitlines()
                print(
                    *(lines if ended.returncode else lines[-1:]), sep="\n", end="\n" * bool(lines)
                )
                if ended.returncode:
                    sys.exit(f"scripts/test: {tool} failed: {advice}")
                if compiling.poll() == USAGE_ERROR:
                    raise WrongArguments(
                        f"pytest refuses {' '.join(options)!r}; see scripts/test --help"
                    )
        except BaseException:
            compiling.kill()
            raise


def run(arguments: Sequence[str]) -> NoReturn:
    """Run what the arguments ask for. Raises WrongArguments."""
    first_option = next(
        (number for number, word in enumerate(arguments) if word.startswith("-")), len(arguments)
    )
    named, options = arguments[:first_option], list(arguments[first_option:])
    files = test_files()
    if "--list" in options:
        print(listing(folders(), files))
        sys.exit(0)
    paths = [resolve(argument, files) for argument in named]
    is_small = bool(paths) and not needs_of(paths, files) & LARGE
    environment = [ROOT / "scripts" / "environment", "--needs", "unit" if is_small else "tests"]
    if code := subprocess.run(environment, check=False).returncode:
        sys.exit(code)
    if options[:1] == ["--quick"]:
        options[:1] = QUICK
    if not paths:
        check(options)
    selected = [file for file in files if is_selected(file, [p.partition("::")[0] for p in paths])]
    workers = WORKERS if not paths or len(selected) > FILES_OF_ONE_PROCESS else ()
    report = ["--durations=15", "--durations-min=1", "-q"]
    given = [f"tests/{path}" for path in paths]
    python = str(TOOLS / "python")
    os.execv(python, [python, "-m", "pytest", *workers, *report, *given, *options])


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> NoReturn:
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(__doc__.rpartition("\n\n")[0])
            sys.exit(0)
        os.chdir(ROOT)
        run(sys.argv[1:])
    except WrongArguments as error:
        print(f"scripts/test: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    from closed_pipe import ending_with_reader

    with ending_with_reader():
        main()
