"""Plants bugs that break a safety rule, one at a time, and runs the tests that must find them.

The files in `plants/`, one per area, list the bugs. Each bug names a function of `minikafka`, a small text in it to
replace, and the tests of which at least one must then fail. The bugs are planted in temporary copies of the repository,
one copy for each process that runs tests, so the working tree never changes. Ends with 1 if a bug survives its tests,
or can no longer be planted.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("minikafka", "tests", "benchmarks", "scripts", "docs", "pyproject.toml")
TEST_TIMEOUT_S = 30
RUN_TIMEOUT_S = 300
"""Tests that run for longer have found the bug, which lets them wait for ever."""
FOUND, SURVIVED, LOST = "found", "SURVIVED", "CANNOT BE PLANTED"
NO_END = "a test that did not end"


SPACE = r"(?:\s|#[^\n]*\n)"
"""White space or a comment."""
SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TOKEN = re.compile(r"\w+|[-+*/%&|^<>=!:@]+|[^\w\s]")


class MisfitError(Exception):
    """A bug cannot be planted; the message says why, and what in the code is closest."""


@dataclass(frozen=True)
class Plant:
    """One bug. `rules`: the ids of the rules that it breaks. `area`: the file of `plants/` that lists it.

    `at`: the qualified name of a function, class or assignment, after `MODULE:` or `FOLDER:` if several modules have
    this name. `old` occurs once in it, whatever its line breaks and comments. `new` replaces it, and is indented with
    the code that it replaces.
    """

    rules: tuple[str, ...]
    what: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]
    area: str = ""


@dataclass(frozen=True)
class Place:
    """Where a bug is planted: the characters from `start` to `end` of a file, which `new` replaces.

    `within`: the first character of the definition with the bug, and the character after the definition.
    """

    file: Path
    text: str
    start: int
    end: int
    new: str
    within: tuple[int, int]

    @property
    def line(self) -> int:
        """Return the number of the first line that changes."""
        return self.text.count("\n", 0, self.start) + 1

    def changed(self) -> str:
        """Return the file's text with the bug."""
        return self.text[: self.start] + self.new + self.text[self.end :]

    def definition(self) -> str:
        """Return the text of the definition with the bug."""
        begin, end = self.within
        return self.text[begin : self.start] + self.new + self.text[self.end : end]


def locate(plant: Plant, root: Path) -> Place:
    """Return the place of a bug in a copy of the repository. Raises MisfitError if there is not exactly one."""
    file = _find_module(plant.at, root / "minikafka")
    text = file.read_text()
    spans = _names_of(file)[plant.at.rpartition(":")[2]]
    pattern = _pattern(plant.old)
    found = [(match.span(), span) for span in spans for match in pattern.finditer(text, *span)]
    where = f"{plant.at} ({file.relative_to(root)})"
    if not found:
        lines = [line.strip() for begin, end in spans for line in text[begin:end].splitlines()]
        [first, *_] = plant.old.strip().splitlines()
        raise MisfitError(
            f"the text is not in {where}{_closest(first.strip(), lines)}\n{plant.old}"
        )
    if len(found) > 1:
        at = ", ".join(str(text.count("\n", 0, start) + 1) for (start, _), _ in found)
        raise MisfitError(
            f"the text is {len(found)} times in {where}, on the lines {at}\n{plant.old}"
        )
    [((start, end), span)] = found
    return Place(file, text, start, end, _indented(plant.new, text, start, end), span)


def _find_module(at: str, package: Path) -> Path:
    """Return the only module below `package` that has the name `at`."""
    qualifier, _, name = at.rpartition(":")
    modules = _modules_by_name(package)
    if name not in modules:
        raise MisfitError(f"minikafka has no {name}{_closest(name, modules)}")
    having = modules[name]
    chosen = [file for file in having if _is_in(file.relative_to(package), qualifier)]
    if len(chosen) != 1:
        modules = ", ".join(str(file.relative_to(package)) for file in chosen or having)
        raise MisfitError(f"{at} does not name one module; {name} is in {modules}")
    return chosen[0]


def _is_in(file: Path, qualifier: str) -> bool:
    """True if the path has the parts of the qualifier in a row: `isr`, `replication/isr` or `replication`."""
    return f"/{qualifier}/".replace("//", "/") in f"/{file.with_suffix('')}/"


@cache
def _modules_by_name(package: Path) -> dict[str, list[Path]]:
    """Return the modules that define each qualified name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(package.rglob("*.py")):
        for name in _names_of(file):
            found.setdefault(name, []).append(file)
    return found


@cache
def _names_of(file: Path) -> dict[str, list[tuple[int, int]]]:
    """Return the qualified names that a module defines, each with the characters of its definitions."""
    lines = file.read_text().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    names: dict[str, list[tuple[int, int]]] = {}

    def visit(node: ast.AST, scope: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            defined = _defined(child, scope)
            if isinstance(child, ast.stmt):
                first = min([child.lineno, *(one.lineno for one in _decorators(child))])
                for name in defined:
                    span = (starts[first - 1], starts[child.end_lineno or first])
                    names.setdefault(prefix + name, []).append(span)
            if isinstance(child, SCOPES):
                visit(child, child, f"{prefix}{child.name}.")
            else:
                visit(child, scope, prefix)

    tree = ast.parse("".join(lines))
    visit(tree, tree, "")
    return names


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


def _defined(node: ast.AST, scope: ast.AST) -> list[str]:
    """Return the names that a statement defines. The variables of a function are none."""
    if isinstance(node, SCOPES):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
        scope, ast.Module | ast.ClassDef
    ):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [
            one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
        ]
    return []


@cache
def _pattern(old: str) -> re.Pattern[str]:
    """Compile a text into a pattern that allows other line breaks, comments, and a comma before a closing bracket."""
    tokens = TOKEN.findall(re.sub(r",(\s*[)\]}])", r"\1", old))
    pattern = _edge(tokens[0], "(?<!")
    for before, token in zip(["", *tokens], tokens, strict=False):
        if before:
            pattern += SPACE + ("+" if _is_word(before) and _is_word(token) else "*")
        if before and token in (")", "]", "}"):
            pattern += f"(?:,{SPACE}*)?"
        pattern += re.escape(token)
    return re.compile(pattern + _edge(tokens[-1], "(?!"))


def _is_word(token: str) -> bool:
    return re.match(r"\w", token) is not None


def _edge(token: str, look: str) -> str:
    """Return the condition that a token does not continue beyond the pattern."""
    if _is_word(token):
        return rf"{look}\w)"
    return rf"{look}[-+*/%&|^<>=!@])" if re.match(r"[-+*/%&|^<>=!@]", token) else ""


def _indented(new: str, text: str, start: int, end: int) -> str:
    """Return `new`, its lines indented like the least indented line that it replaces."""
    replaced = text[text.rfind("\n", 0, start) + 1 : end].splitlines()
    margin = min(re.match(" *", line)[0] for line in replaced if line.strip())  # type: ignore[index]
    return re.sub(r"\n(?=[^\n])", f"\n{margin}", new.strip("\n").lstrip())


def _closest(wanted: str, there: Iterable[str]) -> str:
    found = difflib.get_close_matches(wanted, there, 1, 0.4)
    return f"; closest: {found[0]}" if found else ""


@dataclass(frozen=True)
class Outcome:
    """The result of one plant. `found_by`: the test that failed first, `NO_END`, why the bug is lost, or ""."""

    plant: Plant
    result: str
    found_by: str = ""


def read_plants() -> list[Plant]:
    """Return the bugs of all files of `plants/`."""
    return [
        Plant(**{**one, "rules": tuple(one["rules"]), "tests": tuple(one["tests"])}, area=file.stem)
        for file in sorted(Path(__file__).with_name("plants").glob("*.toml"))
        for one in tomllib.loads(file.read_text())["plant"]
    ]


def copy_tree(target: Path) -> Path:
    """Copy the code and the tests to a new directory; return the directory."""
    target.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "outcomes.json")
            )
        else:
            shutil.copy2(source, target)
    return target


def try_plant(plant: Plant, copy: Path) -> Outcome:
    """Plant one bug in the copy, run its tests, and restore the copy."""
    try:
        place = locate(plant, copy)
    except MisfitError as error:
        return Outcome(plant, LOST, str(error))
    _write(place.file, place.changed())
    try:
        done = _run(plant.tests, copy)
    finally:
        _write(place.file, place.text)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{plant.what}: pytest failed:\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # A failed test also fails the rows of docs/conformance.md that it proves.
    tests = [line.split(" ", 1)[1].split(" - ")[0] for line in failed if "rows.toml" not in line]
    if not done.returncode:
        return Outcome(plant, SURVIVED)
    return Outcome(plant, FOUND, tests[0] if tests else NO_END)


def _write(file: Path, text: str) -> None:
    """Write a module and remove its bytecode, which stays valid if size and second of the new file are the same."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def check_tests(plants: list[Plant], copy: Path) -> None:
    """Run the tests of all plants without a bug. Raises SystemExit if one fails: it would seem to find every bug."""
    tests = {test for plant in plants for test in plant.tests}
    done = _run(sorted(tests), copy)
    if done.returncode:
        raise SystemExit(f"tests fail without a planted bug:\n{done.stdout}{done.stderr}")


def _run(tests: Iterable[str], copy: Path) -> subprocess.CompletedProcess[str]:
    options = [
        "-q",
        "-x",
        "--tb=no",
        "-rfE",
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_TIMEOUT_S}",
        # The default, an exception in whatever code runs, is lost if this is a task of the event loop.
        "--timeout-method=thread",
    ]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        return subprocess.run(
            command,
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, f"no end within {RUN_TIMEOUT_S} s\n", "")


def outcomes(plants: list[Plant], parallel: int) -> Iterator[Outcome]:
    """Try all plants in `parallel` copies of the repository, and yield their outcomes in order."""
    with TemporaryDirectory(prefix="minikafka-planted-") as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(parallel):
            copies.put(copy_tree(Path(directory) / str(number)))

        check_tests(plants, Path(directory) / "0")

        def work(plant: Plant) -> Outcome:
            copy = copies.get()
            try:
                return try_plant(plant, copy)
            finally:
                copies.put(copy)

        executor = ThreadPoolExecutor(parallel)
        try:
            yield from executor.map(work, plants)
        finally:
            executor.shutdown(cancel_futures=True)


def main() -> int:
    """Plant the chosen bugs, print the outcomes, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "rules", nargs="*", help="only bugs that break these rules, for example S29 R27"
    )
    parser.add_argument("--area", action="append", help="only bugs of this file of plants/")
    parser.add_argument(
        "--parallel", type=int, default=2, help="test runs at the same time (default: 2)"
    )
    parser.add_argument("--list", action="store_true", help="print where each bug is planted")
    parser.add_argument("--json", action="store_true", help="print one JSON object per bug")
    options = parser.parse_args()
    plants = _chosen(set(options.rules), set(options.area or ()))
    if options.list:
        return _print_places(plants)
    bad = 0
    for outcome in outcomes(plants, options.parallel):
        bad += outcome.result != FOUND
        print(_as_json(outcome) if options.json else _as_row(outcome), flush=True)
    if not options.json:
        print(f"{len(plants)} bugs, {len(plants) - bad} found, {bad} not")
    return 1 if bad else 0


def _chosen(rules: set[str], areas: set[str]) -> list[Plant]:
    return [
        one
        for one in read_plants()
        if (not rules or rules.intersection(one.rules)) and (not areas or one.area in areas)
    ]


def _print_places(plants: list[Plant]) -> int:
    lost = 0
    for plant in plants:
        print(f"{' '.join(plant.rules):12} {plant.what}")
        try:
            place = locate(plant, ROOT)
            print(f"{'':12} {place.file.relative_to(ROOT)}:{place.line} {plant.at}")
        except MisfitError as error:
            lost += 1
            print(f"{'':12} {LOST}: {error}")
    return 1 if lost else 0


def _as_row(outcome: Outcome) -> str:
    plant = outcome.plant
    result = f"{outcome.result} {outcome.found_by}".strip()
    return f"{' '.join(plant.rules):12} {plant.what}\n{'':12} {result}"


def _as_json(outcome: Outcome) -> str:
    plant = outcome.plant
    fields = {"rules": plant.rules, "what": plant.what, "at": plant.at}
    return json.dumps({**fields, "result": outcome.result, "found_by": outcome.found_by})


if __name__ == "__main__":
    from closed_pipe import ending_with_reader

    try:
        with ending_with_reader():
            sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
