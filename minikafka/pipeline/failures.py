"""Errors of Spark as one line that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from minikafka.base.errors import MinikafkaError

_OURS: Final = re.compile(r"\bminikafka(?:\.\w+)+\.(?P<kind>\w+): (?P<text>[^\n]+)")
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE: Final = re.compile(r" SQLSTATE: \w+")


class PipelineError(MinikafkaError):
    """A pipeline failed; the text is one line that says what is wrong and what to do."""


def explain(error: BaseException) -> MinikafkaError:
    """Return the error as one of minikafka's, with a text of one line."""
    if isinstance(error, MinikafkaError):
        return error
    texts = list(_texts(error))
    for text in texts:
        if found := _OURS.search(text):
            return PipelineError(_STATE.sub("", found["text"]))
    first = next((line for text in texts for line in text.splitlines() if line.strip()), "")
    plain = _CONDITION.sub("", _STATE.sub("", first)).strip() or type(error).__name__
    return PipelineError(f"{plain}; --debug prints the whole error")


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and of its causes, the outermost first."""
    while error is not None:
        yield getattr(error, "_desc", None) or str(error)
        error = getattr(error, "_cause", None) or error.__cause__
