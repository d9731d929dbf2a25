"""Runs one of the files `bench_*.py` in another tree and in this one, in turn: `python -m benchmarks.pairs TREE NAME`.

TREE is a work tree of another commit with an environment of its own in `.venv`. The file of this tree runs in both.
The order changes with each round, and the best round counts.
"""

from __future__ import annotations

import os
import re
import subprocess
from argparse import ArgumentParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 4
LINE = re.compile(r"(.*?) +(\d+) ns  \w+")


def run(tree: Path, name: str) -> dict[str, int]:
    """Return the nanoseconds per operation of each bench in the file."""
    found = subprocess.run(
        [tree / ".venv/bin/python", "-P", ROOT / "benchmarks" / f"{name}.py"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {match[1]: int(match[2]) for match in map(LINE.fullmatch, found.splitlines()) if match}


def main() -> None:
    """Print the best nanoseconds per operation in both trees, and the quotient."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("name")
    options = parser.parse_args()
    best: dict[Path, dict[str, int]] = {options.tree: {}, ROOT: {}}
    for number in range(ROUNDS):
        for tree in list(best) if number % 2 else reversed(list(best)):
            for bench, cost in run(tree, options.name).items():
                best[tree][bench] = min(cost, best[tree].get(bench, cost))
    for bench, after in best[ROOT].items():
        before = best[options.tree][bench]
        print(f"{bench:44} {before:7} ns {after:7} ns {before / after:6.2f}", flush=True)


if __name__ == "__main__":
    main()
