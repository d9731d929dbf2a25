"""Compares the dashboards of `minikafka generate grafana` with the types of Grafana's schema. Needs npm and its index.

    scripts/check-dashboards

TypeScript's compiler checks each dashboard, the options of each panel and the styles of its lines against the package
@grafana/schema: a property that Grafana does not know, or a value that it does not have, is an error. It prints the
errors, and exits with 1 if there is one.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import endings

from minikafka.tools.cli.generate.dashboards import DASHBOARDS
from minikafka.tools.cli.generate.grafana import text_of

SCHEMA: Final = "@grafana/schema@13.2.3"
COMPILER: Final = "typescript@7.0.2"
PANELS: Final = "./node_modules/@grafana/schema/dist/types/raw/composable"
OPTIONS: Final = {"stat": "StatOptions", "timeseries": "LineOptions"}
"""The type of the options of each type of panel."""
HEAD: Final = f"""\
import type {{ Dashboard }} from "@grafana/schema";
import type {{ Options as StatOptions }} from "{PANELS}/stat/panelcfg/x/types.gen";
import type {{ Options as LineOptions, FieldConfig as LineFields }} from "{PANELS}/timeseries/panelcfg/x/types.gen";
// JSON has the values of enumerations as literals, and Grafana has a default for what is missing.
type Loose<T> = T extends string ? `${{T}}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Loose<U>[] : T extends object ? {{ [K in keyof T]?: Loose<T[K]> }} : T;
"""
COMPILE: Final = (
    *("npx", "tsc", "--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler"),
    *("--module", "esnext", "--target", "es2022", "dashboards.ts"),
)


def main() -> bool:
    with tempfile.TemporaryDirectory(prefix="minikafka-dashboards-") as name:
        directory = Path(name)
        (directory / "package.json").write_text("{}")
        install = ("npm", "install", "--no-audit", "--no-fund", "--silent", SCHEMA, COMPILER)
        subprocess.run(install, cwd=directory, check=True)
        (directory / "dashboards.ts").write_text(HEAD + "\n".join(declarations()))
        done = subprocess.run(COMPILE, cwd=directory, check=False, capture_output=True, text=True)
    print(done.stdout or f"{len(DASHBOARDS)} dashboards fit {SCHEMA}\n", end="")
    return done.returncode == 0


def declarations() -> Iterator[str]:
    """Yield a constant of its type for each dashboard, and for the options and styles of each panel."""
    for name in DASHBOARDS:
        dashboard: dict[str, Any] = json.loads(text_of(name))
        yield constant(name, "Dashboard", dashboard)
        for panel in dashboard["panels"]:
            yield constant(f"{name}{panel['id']}", OPTIONS[panel["type"]], panel["options"])
            styles = panel["fieldConfig"]["defaults"].get("custom", {})
            yield constant(f"{name}{panel['id']}Styles", "LineFields", styles)


def constant(name: str, kind: str, value: Any) -> str:
    return f"export const {name}: Loose<{kind}> = {json.dumps(value, indent=1)};\n"


if __name__ == "__main__":
    endings.run("check-dashboards", main)
