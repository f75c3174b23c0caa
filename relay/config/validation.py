"""Validates a file's raw data, and reports every finding in this product's words.

Receives tables as TOML gives them, gives Settings or (key, reasons); values of secrets appear
in no reason. Asks no server.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from relay.config.secrets import CLUSTERS, KeyPath, Table, holder, is_secret
from relay.config.settings import MEMBER, TRANSFORM, Settings

_WORDS = {
    MEMBER: "1 to 100 letters, digits, dots, underscores and hyphens",
    TRANSFORM: "module:function, as in etl.prices:rounded, or empty for no transform",
}
"""What the patterns of relay.config.settings mean."""


def dotted(path: KeyPath) -> str:
    """Return a key as TOML writes it: parts that are no bare keys in quotes."""
    parts = [str(part) for part in path]
    return ".".join(p if re.fullmatch(r"[A-Za-z0-9_-]+", p) else f'"{p}"' for p in parts)


def validate(data: Table) -> tuple[Settings | None, dict[KeyPath, list[str]]]:
    """Return the settings, or None and what is wrong by key; validates until nothing new shows.

    A check over a whole section runs only when all its keys are right, so what is wrong
    is taken out and the rest tried again; a key then missing was there before.
    """
    reasons: dict[KeyPath, list[str]] = {}
    removed: set[KeyPath] = set()
    rest = copy.deepcopy(data)
    for name in ("kafka", "source", "clickhouse", "loader"):
        rest.setdefault(name, {})  # so that its missing keys are named
    while True:
        try:
            settings = Settings.model_validate(rest)
        except ValidationError as errors:
            details = errors.errors(include_url=False)
        else:
            return (None if reasons else settings), reasons
        fresh: dict[KeyPath, list[str]] = {}
        for detail in details:
            path = _path_in(rest, detail)
            if path not in removed and path not in reasons:
                fresh.setdefault(path, []).append(_reason(path, detail))
        if not fresh:
            return None, reasons
        reasons.update(fresh)
        removed.update(path for path in fresh if _take_out(rest, path))


def _path_in(data: object, detail: ErrorDetails) -> KeyPath:
    """The key in the file; pydantic appends names of its own, as of a union's members."""
    location = detail["loc"]
    if detail["type"] == "missing":
        return location
    for depth, part in enumerate(location):
        if not isinstance(data, dict) or part not in data:
            return location[:depth]
        data = data[part]
    return location


def _take_out(data: Table, path: KeyPath) -> bool:
    """Remove data[path]; return False if it is not there. A whole section is not taken out."""
    table = holder(data, path)
    if not path or table is None or path[-1] not in table:
        return False
    if len(path) == 1 and isinstance(table[path[-1]], dict) and path[-1] in Settings.model_fields:
        return False
    del table[path[-1]]
    return True


def _reason(path: KeyPath, detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "is missing, and has no default"
    if detail["type"] == "extra_forbidden":
        if path[-2:] == ("source", "topics"):
            return "an app reads one topic, source.topic; name a pipeline for each in [pipelines]"
        meant = _did_you_mean(path)
        return f"unknown key; did you mean {meant}?" if meant else "unknown key"
    if path[:-2] in CLUSTERS and path[-2] == "client":
        return "should be text, a number, true or false"
    value = detail["input"]
    if detail["type"] == "string_pattern_mismatch":
        pattern = detail["ctx"]["pattern"]
        return f"should be {_WORDS.get(pattern, pattern)}, not {value!r}"
    reason = re.sub(r"^(Value error, |Input |String )", "", detail["msg"])
    if isinstance(value, dict):
        return reason  # a check over a whole section, which names its keys
    if detail["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        return f"should be a table, not a single value ({type(value).__name__})"
    if is_secret(path) or detail["type"] == "value_error":
        return reason
    return f"{reason}, not {value!r}"


def _did_you_mean(path: KeyPath) -> str | None:
    """The known key nearest to an unknown one: of its own section first, then of any."""
    keys = [p for p in known_keys() if "*" not in p]
    siblings = {str(p[-1]): p for p in keys if p[:-1] == path[:-1]}
    anywhere = {str(p[-1]): p for p in keys}
    for names in (siblings, anywhere):
        near = difflib.get_close_matches(str(path[-1]), names, n=1)
        if near:
            return dotted(names[near[0]])
    return None


def known_keys(model: type[BaseModel] = Settings, prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield every key a file may hold, `*` for names the user chooses, in the model's order."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        yield path
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from known_keys(annotation, path)
            continue
        for inner in get_args(annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from known_keys(inner, (*path, "*"))
