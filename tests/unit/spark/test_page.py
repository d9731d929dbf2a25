"""The page about Spark lists the options of reads and writes, because no program prints them."""

from __future__ import annotations

import re
from pathlib import Path

from minikafka.spark.sink.options import DEFAULTS as WRITE_DEFAULTS
from minikafka.spark.source.options import DEFAULTS as READ_DEFAULTS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
WITHOUT_DEFAULT = {
    "required",
    "one of three",
    "none",
    "`earliest`, stream: `latest`",
    "`latest`",
    "`4194304`, without values `16777216`",
}


def test_spark_page_lists_every_option_with_its_default():
    page = PAGE.read_text()
    reading, writing = page.split("## Writing")
    for text, defaults in ((reading, READ_DEFAULTS), (writing, WRITE_DEFAULTS)):
        rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE)
        options = {name: default for name, default in rows if name in defaults}
        assert options.keys() == defaults.keys()
        assert {
            name: default.strip("`")
            for name, default in options.items()
            if default not in WITHOUT_DEFAULT
        } == {name: default for name, default in defaults.items() if default is not None}
