"""What programs import, from its signatures and docstrings: tables of the page `api`.

A docstring is text, then sections (`Args:`, `Attributes:`, `Returns:`, `Raises:`). Entries of a
section are `name: text`, continued on lines that are indented deeper.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from relay.errors import RelayError
from relay.produce import BadValue
from tests.docs.documents import table

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises)(?: \(.+\))?:$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}([\w, ]+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def sections(docstring: str) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and its sections by name, each as it is written."""
    text, *rest = _SECTION.split(docstring)
    bodies = zip(rest[::2], rest[1::2], strict=True)
    return text.strip(), {name: body.strip("\n") for name, body in bodies}


def entries(section: str) -> dict[str, str]:
    """What a section says, by the name, or the names, that it says it of."""
    return {name: _one_line(text) for name, text in _ENTRY.findall(section)}


def described(thing: Callable[..., Any], name: str = "") -> str:
    """A class or a function: signature, text, and a table of its arguments."""
    text, parts = sections(_docstring(thing))
    fields = {**entries(parts.get("Args", "")), **entries(parts.get("Attributes", ""))}
    body = [(f"`{argument}`", meaning) for argument, meaning in fields.items()]
    shown = table(("argument", "meaning"), body) if body else ""
    errors = _errors(parts)
    raises = f"Raises {errors}" if errors else ""
    head = f"`{name or thing.__name__}{_signature(thing)}`"
    return "\n\n".join(part for part in (head, text, shown, raises) if part)


def methods_table(of: type) -> str:
    """The public methods of a class, in the order of its source."""
    body = []
    for name in vars(of):
        if not name.startswith("_"):
            method = getattr(of, name)
            text, parts = sections(_docstring(method))
            meaning = " ".join((_one_line(text), *_arguments(parts), *_result(parts)))
            body.append((f"`{name}{_signature(method)}`", meaning, _errors(parts)))
    return table(("method", "what it does", "raises"), body)


def errors_table() -> str:
    """What programs may catch."""
    body = [
        (f"`{module}.{one.__name__}`", str(one.exit_code), _docstring(one).split("\n")[0])
        for module, one in (
            *(("relay.errors", one) for one in (RelayError, *RelayError.__subclasses__())),
            ("relay.produce", BadValue),
        )
    ]
    return table(("error", "exit status", "when"), body)


def _arguments(parts: dict[str, str]) -> Iterator[str]:
    for name, meaning in entries(parts.get("Args", "")).items():
        yield f"`{name}`: {meaning}"


def _result(parts: dict[str, str]) -> Iterator[str]:
    if text := _one_line(parts.get("Returns", "")):
        yield f"Returns {text[0].lower()}{text[1:]}"


def _errors(parts: dict[str, str]) -> str:
    found = entries(parts.get("Raises", ""))
    return " ".join(f"{_code(names)}: {when}" for names, when in found.items())


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _signature(thing: Callable[..., Any]) -> str:
    """Without self and the quotes of annotations; a None that comes back goes without saying."""
    found = inspect.signature(thing)
    kept = [one for name, one in found.parameters.items() if name != "self"]
    text = str(found.replace(parameters=kept)).replace("'", "")
    return text.removesuffix(" -> None")


def _docstring(thing: object) -> str:
    text = inspect.getdoc(thing)
    assert text, f"{thing} has no docstring"
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())
