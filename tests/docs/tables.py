"""Every generated table, made from the code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from types import ModuleType
from typing import get_args

import click
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loader.cli import loader
from loader.clickhouse.ledger_table import create_replicated
from loader.metrics import definitions as of_loader
from relay import config
from relay.cli import cli
from relay.cli.config import _first_line, _plain, _section, _toml
from relay.cli.docs import ROOT, anchor_of, headings_of
from relay.clickhouse.errors import CODES
from relay.config.secrets import FROM_ENVIRONMENT, USERS_FROM_ENVIRONMENT
from relay.config.settings import Settings
from relay.config.validation import dotted
from relay.core import sealing
from relay.operate.doctor.findings import KINDS
from relay.operate.metrics import definitions as of_relay
from relay.operate.metrics.client_definitions import CLIENTS
from relay.operate.page.verifier_metrics import METRICS as OF_VERIFIER
from relay.operate.verify.judge import anomaly
from relay.produce import Batching, RowProducer
from relay.program.command import EXIT_STATUSES, HELP
from relay.program.metric import Metric
from relay.schema.dead_reason import DeadKind
from tests.docs import api
from tests.docs.documents import table
from tests.docs.process_metrics import PROCESS
from tests.docs.types import spark_table, types_table

METRICS: Mapping[str, tuple[Metric, ...]] = {
    "relay": (*of_relay.RECORDED, *of_relay.CURRENT),
    "clients": CLIENTS,
    "loader": (*of_loader.RECORDED, *of_loader.CURRENT),
    "verifier": OF_VERIFIER,
    "process": PROCESS,
}
"""By the name of their table."""


# ---- settings ------------------------------------------------------------------------------


def settings_table() -> str:
    """Every setting, a table for each section of the file."""
    return "\n\n".join(_sections(Settings, ()))


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    fields = model.model_fields
    values = {n: f for n, f in fields.items() if _section(f) is None}
    title = f"### `[{'.'.join(path)}]`" if path else "### The top of the file"
    about = f"{_first_line(model)}\n\n" if path else ""
    body = [
        (f"`{'.'.join((*path, name))}`", _default(field, (*path, name)), _meaning(field))
        for name, field in values.items()
    ]
    yield f"{title}\n\n{about}{table(('setting', 'default', 'meaning'), body)}"
    for name, field in fields.items():
        section = _section(field)
        if section is not None:
            yield from _sections(section, (*path, name))


def _default(field: FieldInfo, path: tuple[str, ...]) -> str:
    if field.is_required():
        return f"needed, as `{_toml(field.examples[0])}`" if field.examples else "needed"
    if field.default_factory is not None:
        return "" if field.examples is None or isinstance(field.examples[0], dict) else "see there"
    value = _toml(_plain(field.get_default(), path))
    if value in {"", '""'}:
        return ""
    return f"`{value}`"


def _meaning(field: FieldInfo) -> str:
    parts = [field.description or ""]
    each = (get_args(argument) or (argument,) for argument in get_args(field.annotation))
    words = [word for listed in each for word in listed if isinstance(word, str)]
    if words:
        parts.append(f"One of {', '.join(f'`{word}`' for word in words)}")
    if not field.is_required() and field.examples:
        parts.append(f"Example: `{_toml(_with_quoted_keys(field.examples[0]))}`")
    return ". ".join(parts)


def _with_quoted_keys(example: object) -> object:
    """The example with keys that have a dot as TOML wants them."""
    if not isinstance(example, dict):
        return example
    return {dotted((key,)): value for key, value in example.items()}


def environment_table() -> str:
    """The variables that stand for a setting."""
    every = {**FROM_ENVIRONMENT, **USERS_FROM_ENVIRONMENT}
    body = [(f"`{name}`", f"`{_dotted(path)}`") for name, path in every.items()]
    return table(("variable", "sets"), body)


def _dotted(path: Iterable[str]) -> str:
    return ".".join(f'"{part}"' if "." in part else part for part in path)


# ---- metrics and alerts --------------------------------------------------------------------


def metrics_table(name: str) -> str:
    rows = [
        f"| `{_metric_signature(one)}` | {one.kind}, {one.unit} | {one.question} |"
        for one in METRICS[name]
    ]
    return "\n".join(["| metric | kind, unit | question it answers |", "|---|---|---|", *rows])


def _metric_signature(one: Metric) -> str:
    """Its name, with its labels."""
    return f"{one.name}{{{', '.join(one.labels)}}}" if one.labels else one.name


def alerts_table() -> str:
    """The alert rules of k8s/."""
    found = yaml.safe_load(
        (ROOT / "k8s/components/monitoring/prometheus-rules.yaml").read_text(encoding="utf-8")
    )
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    body = [
        (
            f"`{rule['alert']}`",
            rule["labels"]["severity"],
            rule.get("for", "at once"),
            " ".join(rule["annotations"]["description"].split()),
            _runbook(rule["annotations"]["runbook"]),
        )
        for rule in rules
    ]
    return table(("alert", "severity", "after", "meaning, and what to do", "more"), body)


def _runbook(command: str) -> str:
    """A link in the place of `relay docs troubleshooting#SECTION`."""
    anchor = command.partition("#")[2]
    text = (ROOT / "relay/docs/troubleshooting.md").read_text(encoding="utf-8")
    titles = {anchor_of(title): title for _, _, title in headings_of(text)}
    return f"[{titles[anchor]}](troubleshooting.md#{anchor})"


# ---- commands ------------------------------------------------------------------------------


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with how it is called; hidden ones left out."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path, **HELP)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, f"{path} {name}")
    elif not command.hidden:
        yield path, command


COMMON = frozenset({"--config", "--pipeline", "--json", "--help", "--log-format"})
"""Options that the document describes once."""


def commands_table() -> str:
    """Every command with its options."""
    found = [*leaves(cli, "relay"), *leaves(loader, "loader")]
    return "\n\n".join(_command(path, command) for path, command in found)


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, **HELP)
    usage = " ".join([path, *command.collect_usage_pieces(context)]).replace("[OPTIONS] ", "")
    first = " ".join((command.help or "").split("\n\n")[0].split())
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    body = [
        (f"`{_signature(option, context)}`", _option_default(option, context), _help(option))
        for option in options
        if option.opts[0] not in COMMON
    ]
    common = [option.opts[0] for option in options if option.opts[0] in COMMON]
    also = f"Also {', '.join(f'`{name}`' for name in common)}." if common else ""
    shown = table(("option", "default", "meaning"), body) if body else ""
    parts = [f"### {path}", f"`{usage.removesuffix(' [OPTIONS]')}`", first, shown, also]
    return "\n\n".join(part for part in parts if part)


def _signature(option: click.Option, context: click.Context) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} {option.make_metavar(context)}"


_DEFAULT = re.compile(r"\s*\[default: (.+?)\]")


def _help(option: click.Option) -> str:
    return _DEFAULT.sub("", option.help or "")


def _option_default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "needed"
    if said := _DEFAULT.search(option.help or ""):
        return f"`{said[1]}`"
    if option.is_flag or option.multiple or not (option.show_default or context.show_default):
        return ""
    return f"`{option.default}`"


def exits_table() -> str:
    """Exit statuses as the help texts have them."""
    body = re.findall(r"^  (\d+) +(.+)$", EXIT_STATUSES, re.MULTILINE)
    return table(("status", "meaning"), body)


# ---- what the programs say -------------------------------------------------------------------


def docstrings(module: ModuleType, kind: type[Enum]) -> dict[str, str]:
    """What stands under each member of an enumeration, by the member's value."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found = {}
    for member, text in pairwise(body):
        if (
            isinstance(member, ast.Assign)
            and isinstance(member.targets[0], ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            words = " ".join(str(text.value.value).split())
            found[kind[member.targets[0].id].value] = words
    return found


def anomalies_table() -> str:
    said = docstrings(anomaly, anomaly.AnomalyKind)
    body = [(f"`{kind.value}`", said[kind.value]) for kind in anomaly.AnomalyKind]
    return table(("anomaly", "meaning"), body)


def findings_table() -> str:
    body = [(f"`{code}`", kind.severity.value, kind.why) for code, kind in KINDS.items()]
    return table(("finding", "severity", "why it matters"), body)


def sealing_table() -> str:
    """When a buffer is sealed, in the order in which the rules are asked."""
    body = [
        (f"`{rule.reason.value}`", re.sub(r"\{([a-z_.]+)\}", _with_default, rule.when))
        for rule in sealing.RULES
    ]
    return table(("reason", "when"), body)


def _with_default(setting: re.Match[str]) -> str:
    model, *path = Settings, *setting[1].split(".")
    for section in path[:-1]:
        model = _section(model.model_fields[section])
    default = model.model_fields[path[-1]].default
    return f"`{setting[1]}` ({default:{'g' if isinstance(default, float) else ','}})"


def dead_letter_kinds_table() -> str:
    body = [(f"`{kind.value}`", kind.because, kind.next_step) for kind in DeadKind]
    return table(("kind", "because", "what to do"), body)


def codes_table() -> str:
    """ClickHouse's error codes."""
    whys = {code.number: code.why for code in CODES.values()}

    def why(text: str) -> str:
        same = re.match(r"as (\d+)", text)
        return text.replace(same[0], f"{whys[int(same[1])]} ({same[0]})", 1) if same else text

    body = [
        (str(code.number), code.name, code.about.value, why(code.why)) for code in CODES.values()
    ]
    return table(("code", "name", "is about", "what it means here"), body)


def ledger_statements() -> str:
    """What makes the ledger of a cluster, a line for each column."""
    database, table = create_replicated("relay")
    start, columns, end = re.split(r" \((?=app )|\) (?=ENGINE)", table)
    listed = ",\n    ".join(re.split(r", (?=[a-z_]+ [A-Z])", columns))
    return f"```sql\n{database};\n{start}\n(\n    {listed}\n)\n{end};\n```"


TABLES: Mapping[str, Callable[[], str]] = {
    "settings": settings_table,
    "environment": environment_table,
    "types": types_table,
    "spark-types": spark_table,
    "commands": commands_table,
    "api-row-producer": lambda: api.described(RowProducer),
    "api-row-producer-methods": lambda: api.methods_table(RowProducer),
    "api-batching": lambda: api.described(Batching),
    "api-load": lambda: api.described(config.load, "relay.config.load"),
    "api-errors": api.errors_table,
    "exit-statuses": exits_table,
    "anomalies": anomalies_table,
    "findings": findings_table,
    "clickhouse-errors": codes_table,
    "ledger": ledger_statements,
    "sealing": sealing_table,
    "dead-letter-kinds": dead_letter_kinds_table,
    "alerts": alerts_table,
    "metrics-relay": lambda: metrics_table("relay"),
    "metrics-clients": lambda: metrics_table("clients"),
    "metrics-loader": lambda: metrics_table("loader"),
    "metrics-verifier": lambda: metrics_table("verifier"),
    "metrics-process": lambda: metrics_table("process"),
}
"""Maker of each table, by the name in its mark."""


def every() -> dict[str, str]:
    """All tables by name."""
    return {name: make() for name, make in TABLES.items()}
