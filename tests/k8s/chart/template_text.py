"""Kubernetes objects as the text of Helm templates.

Receives objects in which some values stand for expressions of Helm, gives YAML with these
expressions in their places. Whatever else looks like an expression, as in alerts, is escaped.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_MARK = re.compile(r"HELM(\d+)X")
_LINE = re.compile(r"^( *(?:- )?)(?:(.*?): )?HELM(\d+)X$")
_EDGE = 10_000
"""No line is folded."""


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


class Expressions:
    """Expressions of Helm, each with what stands for it in an object."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def scalar(self, expression: str) -> str:
        """Return what stands for one value, or a part of a text."""
        return self._stand("{{ " + expression + " }}", "scalar")

    def tree(self, value: str) -> str:
        """Return what stands for a mapping or a list that a value of the chart holds."""
        return self._stand(value, "tree")

    def merged(self, value: str) -> dict[str, None]:
        """Return what stands for further keys of a mapping, as a value of the chart has them."""
        return {self._stand(value, "merged"): None}

    def block(self, template: str) -> str:
        """Return what stands for a text of several lines that a named template gives."""
        return self._stand(template, "block")

    def _stand(self, expression: str, kind: str) -> str:
        self._found.append((expression, kind))
        return f"HELM{len(self._found) - 1}X"

    def written(self, value: Any) -> str:
        """Return an object, or a part of one, as a template's text."""
        text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=_EDGE, allow_unicode=True)
        return self.filled(text)

    def filled(self, text: str) -> str:
        """Return a text with the expressions in the place of what stands for them."""
        escaped = text.replace("{{", '{{ "{{" }}')
        return "".join(f"{self._line(line)}\n" for line in escaped.splitlines())

    def _line(self, line: str) -> str:
        whole = _LINE.match(line.removesuffix(": null"))
        if whole is None:
            return _MARK.sub(lambda mark: self._found[int(mark[1])][0], line)
        start, key, number = whole[1], whole[2], int(whole[3])
        expression, kind = self._found[number]
        indent = len(start)
        match kind:
            case "merged":
                blank = " " * indent
                return (
                    f"{blank}{{{{- with {expression} }}}}\n"
                    f"{blank}{{{{- toYaml . | nindent {indent} }}}}\n{blank}{{{{- end }}}}"
                )
            case "tree":
                return f"{start}{key}: {{{{- toYaml {expression} | nindent {indent + 2} }}}}"
            case "block":
                include = f'include "{expression}" . | nindent {indent + 2}'
                return f"{start}{key}: |\n{' ' * (indent + 2)}{{{{- {include} }}}}"
            case _:
                return f"{start}{key + ': ' if key else ''}{expression}"
