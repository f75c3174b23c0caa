"""Every setting, metric, alert and variable that a document names exists."""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

import pytest
import yaml
from pydantic import BaseModel

from relay.cli.config import _section
from relay.cli.docs import ROOT
from relay.config.settings import Settings
from relay.dev.jars import KAFKA_DEFAULT
from relay.program.metric import HISTOGRAM
from tests.docs import documents
from tests.docs.tables import METRICS


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every section and setting, with dots."""
    for name, field in model.model_fields.items():
        here = (*path, name)
        yield ".".join(here)
        section = _section(field)
        if section is not None:
            yield from keys(section, here)


KEYS = frozenset(keys(Settings))
SECTIONS = ("kafka", "source", "clickhouse", "block", "relay", "loader")
FREE = ("client", "client_files", "tables", "pipelines")
"""Tables of the file whose keys are the user's."""

NOT_SETTINGS = frozenset(
    {
        # files, tables and servers that are called alike
        *("relay.toml", "relay.ledger", "relay.trial"),
    }
)


def unknown_settings(text: str) -> list[str]:
    """What looks like a setting, between backticks or in TOML, and is none."""
    found = []
    for code in documents.code(text):
        name = code.partition(" = ")[0]
        if not re.fullmatch(rf"({'|'.join(SECTIONS)})(\.[a-z_]+)+", name):
            continue
        if name not in KEYS | NOT_SETTINGS and not _is_module(name):
            found.append(name)
    for block in documents.fences(text, "toml"):
        data = tomllib.loads(block)
        data.pop("app", None)
        for pipeline in data.pop("pipelines", {}).values():
            found += _unknown(pipeline, ())
        found += _unknown(data, ())
    return found


def _is_module(name: str) -> bool:
    """Whether it names a module, a room, or something in one of them."""
    place = ROOT / name.replace(".", "/")
    within = place.parent.parent == ROOT  # `relay.x` is no part of a module `relay`
    places = (place,) if within else (place, place.parent)
    return any(one.is_dir() or one.with_suffix(".py").is_file() for one in places)


def _unknown(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name, value in data.items():
        here = (*path, name)
        if ".".join(here) not in KEYS and here != ("app",):
            yield ".".join(here)
        elif isinstance(value, dict) and name not in FREE:
            yield from _unknown(value, here)


def series() -> frozenset[str]:
    """Every name that Prometheus stores."""
    found = set()
    for metrics in METRICS.values():
        for one in metrics:
            found.add(one.name)
            if one.kind == HISTOGRAM:
                found |= {f"{one.name}_{part}" for part in ("bucket", "sum", "count")}
    return frozenset(found)


SERIES = series()
_METRIC = re.compile(r"\b(?:relay|loader|verifier|process)_[a-z_]+[a-z]\b")
NOT_METRICS = frozenset({"relay_check", "loader_check"}) - SERIES


def unknown_metrics(text: str) -> list[str]:
    """Names between backticks that begin as metrics do, and are none."""
    named = [name for code in documents.code(text) for name in _METRIC.findall(code)]
    return [name for name in named if name not in SERIES | NOT_METRICS and f"{name}_*" not in text]


def alerts() -> frozenset[str]:
    found = yaml.safe_load(
        (ROOT / "k8s/components/monitoring/prometheus-rules.yaml").read_text(encoding="utf-8")
    )
    return frozenset(rule["alert"] for group in found["spec"]["groups"] for rule in group["rules"])


def unknown_alerts(text: str) -> list[str]:
    """Names after the word alert that no rule has."""
    named = re.findall(r"alerts? `([A-Z]\w+)`", text)
    return [name for name in named if name not in alerts()]


def unknown_variables(text: str) -> list[str]:
    """Variables of the environment that the code never reads."""
    sources = [p for package in ("relay", "loader") for p in (ROOT / package).rglob("*.py")]
    code = "\n".join(p.read_text(encoding="utf-8") for p in sources)
    named = set(re.findall(r"\b(?:RELAY|LOADER)_[A-Z_]+\b", text))
    return sorted(name for name in named if f'"{name}"' not in code)


def broken_imports(text: str) -> list[str]:
    """Imports of Python in fenced blocks, here-documents included, that fail or warn."""
    found = []
    for block in documents.fences(text, "python", "sh"):
        for line in re.findall(r"^(?:from|import) .+$", block, re.MULTILINE):
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)
                try:
                    exec(compile(line, "document", "exec"), {})
                except (ImportError, DeprecationWarning) as error:
                    found.append(f"{line}: {error}")
    return found


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_import_works(path: str) -> None:
    assert broken_imports(documents.text_of(path)) == []


@pytest.mark.parametrize(
    "line",
    ["from relay.produce import RowProducr", "import relay.nothing", "import relay.producer"],
)
def test_an_import_that_fails_or_warns_is_found(line: str) -> None:
    """Negative control: a name, a module, one that has moved."""
    sys.modules.pop("relay.producer", None)
    assert len(broken_imports(f"```python\n{line}\n```")) == 1
    assert len(broken_imports(f"```sh\npython - <<'END'\n{line}\nEND\n```")) == 1


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_setting_exists(path: str) -> None:
    assert unknown_settings(documents.text_of(path)) == []


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_metric_exists(path: str) -> None:
    assert unknown_metrics(documents.text_of(path)) == []


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_alert_and_variable_exists(path: str) -> None:
    text = documents.text_of(path)
    assert unknown_alerts(text) == []
    assert unknown_variables(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`relay.max_buffer_byts`", ["relay.max_buffer_byts"]),
        ('`source.framing = "row"` `source.frame = "row"`', ["source.frame"]),
        ("```toml\n[relay]\nmembr = 'a'\n```", ["relay.membr"]),
        ("```toml\n[pipelines.east]\nkafka.bootstrp = 'a'\n```", ["kafka.bootstrp"]),
        ("```toml\napp = 'x'\n[kafka.client]\n'security.protocol' = 'ssl'\n```", []),
        ("`relay.toml` `relay.core` `relay.nothing.at_all`", ["relay.nothing.at_all"]),
    ],
)
def test_an_unknown_setting_is_found(text: str, found: list[str]) -> None:
    """Negative control."""
    assert unknown_settings(text) == found


def test_unknown_metrics_alerts_and_variables_are_found() -> None:
    """Negative control."""
    assert unknown_metrics(
        "`relay_polls_total` `relay_poll_seconds_bucket` `relay_pols_total`"
    ) == ["relay_pols_total"]
    assert unknown_alerts("the alert `RelayDown`, the alert `RelayGone`") == ["RelayGone"]
    assert unknown_variables("`RELAY_LOG_FORMAT` `RELAY_LOG_FROM`") == ["RELAY_LOG_FROM"]


def test_settings_of_documents_are_found_at_all() -> None:
    """What is looked for is there: each section is named somewhere."""
    text = "".join(documents.every().values())
    for section in SECTIONS:
        assert any(f"`{key}" in text for key in KEYS if key.startswith(f"{section}.")), section
    assert get_origin(Settings.model_fields["block"].annotation) is None


def test_what_was_run_is_what_the_image_pins() -> None:
    """Kafka's version is that of `relay dev`, Spark's and the client's are those of the image."""
    text = documents.text_of("relay/docs/upgrade.md")
    table = {line.split("|")[1].strip(): line for line in text.splitlines() if line[:2] == "| "}
    pins = (ROOT / "k8s/constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in pins if "==" in line and line[0] != "#")
    assert f"| {KAFKA_DEFAULT}," in table["Kafka brokers"]
    assert f"| {pinned['pyspark']}, " in table["Spark, for the loader"]
    assert f"| {pinned['confluent-kafka']} |" in table["librdkafka, in `confluent-kafka`"]
