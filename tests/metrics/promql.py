"""What a PromQL expression asks for, and the time series that the programs have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relay.program.metric import HISTOGRAM, Metric
from tests.docs.tables import METRICS

EVERY = tuple(one for table in METRICS.values() for one in table)

# Made by Prometheus itself, from what it scrapes.
OWN = {"up"}


def samples(metrics: Iterable[Metric]) -> dict[str, set[str]]:
    """Names of time series as Prometheus stores them, with their labels."""
    found: dict[str, set[str]] = {name: set() for name in OWN}
    for one in metrics:
        labels = set(one.labels)
        if one.kind == HISTOGRAM:
            found |= {f"{one.name}_{part}": labels for part in ("sum", "count")}
            found[f"{one.name}_bucket"] = labels | {"le"}
        else:
            found[one.name] = labels
    return found


_WORD = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABELS = re.compile(r"\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_LANGUAGE = {
    *("sum", "max", "min", "avg", "count", "rate", "increase", "histogram_quantile", "time"),
    *("clamp_min", "changes", "absent", "and", "or", "unless", "by", "on", "topk", "bool"),
    *("ignoring", "without", "group_left", "group_right", "scalar", "vector", "delta", "deriv"),
    *("max_over_time", "min_over_time", "label_replace", "group", "last_over_time", "offset"),
}


def series(expression: str) -> set[str]:
    """The names of time series in a PromQL expression."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = _GROUPING.sub("", _LABELS.sub("", bare))
    bare = re.sub(r"\[[^\]]*\]|\$\w+|\b\d+(\.\d+)?(e\d+)?[smhd]?\b", "", bare)
    return {word for word in _WORD.findall(bare) if word not in _LANGUAGE}


def labels(expression: str) -> set[str]:
    """The label names that it filters or groups by."""
    within = [part.split("=")[0].rstrip("!~ ") for text in _LABELS.findall(expression)
              for part in re.sub(r'"[^"]*"', '""', text).split(",")]  # fmt: skip
    grouped = [part for text in _GROUPING.findall(expression) for part in text.split(",")]
    return {part.strip() for part in (*within, *grouped) if part.strip()}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name, and what its labels must be."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def takes(self, name: str, of: Mapping[str, str]) -> bool:
        """Whether it asks for the time series of that name and those labels."""
        return name == self.name and all(
            _fits(of.get(label, ""), how, value) for label, how, value in self.matchers
        )


def _fits(value: str, how: str, wanted: str) -> bool:
    pattern = wanted if "~" in how else re.escape(wanted)
    return (re.fullmatch(pattern, value) is None) == how.startswith("!")


_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def selectors(expression: str) -> list[Selector]:
    """Everything that an expression asks for, with its labels."""
    names = series(expression)
    parts = re.findall(r"\b([A-Za-z_:][A-Za-z0-9_:]*)(?:\{([^}]*)\})?", expression)
    return [
        Selector(name, tuple(_MATCHER.findall(matchers)))
        for name, matchers in parts
        if name in names
    ]


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """The name and labels of one time series, as Prometheus writes it."""
    name, _, matchers = text.partition("{")
    return name, {label: value for label, _, value in _MATCHER.findall(matchers)}
