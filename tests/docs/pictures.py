"""`python -m tests.docs.pictures`: the documents' pictures, made anew from a live run.

Real rows of three tables pass through relay and loader, and one message that names no table which
is there. Meanwhile the verifier's page and `relay status` are pictured. There is no Grafana where
this is developed, so the dashboard has no picture.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.text import Text
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from relay.cli.docs import ROOT
from relay.config import kafka_clients, settings_file
from relay.dev.demo import data
from relay.dev.layout import free_ports
from relay.produce import RowProducer
from tests.docs.reader import Reader, reading
from tests.page import browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.config.settings import Settings

FIRST, LOADED = 20_000, 80_000
"""Flights in ClickHouse before the bad message is sent, and before it is pictured: the second need
a minute more, in which the curves are steady."""
TABLES = [table for table in data.TABLES if table.name in {"flights", "weather", "planes"}]
ROWS = {"flights": 1_000, "weather": 120, "planes": 40}
"""A second."""
COLUMNS = 110
"""Of the terminal."""


@click.command()
@click.argument(
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "relay" / "docs",
)
def main(directory: Path) -> None:
    """Write page.png and status.svg into DIRECTORY; by default, where the documents show them."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as at, reading(Path(at)) as reader:
        page = _begin(reader)
        settings = settings_file.load(Path(at) / "relay.toml")
        with _rows_come(settings):
            _wait_for_flights(reader, FIRST)
            _write_bad_message(settings)
            _wait_for_flights(reader, LOADED)
            _picture_status(reader, directory / "status.svg")
            _picture_page(page, directory / "page.png")
        reader.stops()


def _begin(reader: Reader) -> str:
    """Start servers and programs; return the page's address."""
    tables = "\n".join(f"{table.create()};" for table in TABLES)
    (port,) = free_ports(1)
    reader.types(
        "relay dev up\n"
        "relay config init relay.toml --short --app shop\n"
        "relay topic create\n"
        f"relay dev sql <<'END'\nCREATE DATABASE {data.DATABASE};\n{tables}\nEND\n"
        "relay run --member a\n"
        "relay run --member b\n"
        "loader run\n"
        f"relay verify --follow --http 127.0.0.1:{port}\n"
    )
    return f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def _rows_come(settings: Settings) -> Iterator[None]:
    """Produce rows at a steady rate meanwhile."""
    over = threading.Event()
    with RowProducer.from_settings(settings) as producer, ThreadPoolExecutor(1) as pool:
        feed = pool.submit(_feed, producer, over)
        try:
            yield
        finally:
            over.set()
        feed.result()


def _feed(producer: RowProducer, over: threading.Event) -> None:
    rows = [(table, data.read(table), ROWS[table.name]) for table in TABLES]
    for second in itertools.count():
        for table, all_of, some in rows:
            first = second % (all_of.num_rows // some) * some
            (part,) = all_of.slice(first, some).combine_chunks().to_batches()
            producer.write_arrow(table.full_name, part)
        producer.flush()
        if over.wait(1):
            return


def _wait_for_flights(reader: Reader, rows: int) -> None:
    enough = f"SELECT count() >= {rows} FROM nyc.flights FORMAT TSV"
    reader.waits(f"relay dev sql '{enough}'", "1")


def _write_bad_message(settings: Settings) -> None:
    producer = Producer(kafka_clients.admin(settings.kafka))
    producer.produce(settings.source.topic, b"\x08\x01", headers={"table": "nyc.fligths"})
    producer.flush(30)


def _picture_page(address: str, file: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as profile,
        browser.opened(Path(profile), 1_280, 1_200) as chrome,
    ):
        chrome.get(address)
        wait = WebDriverWait(chrome, 60)
        wait.until(lambda at: at.find_elements(By.CSS_SELECTOR, "#blocks button"))
        browser.scheme(chrome, "light")
        chrome.save_screenshot(str(file))


def _picture_status(reader: Reader, file: Path) -> None:
    printed = reader.types(f"COLUMNS={COLUMNS} FORCE_COLOR=1 relay status")
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(printed))
    # Without rich's fonts, which a reader's browser would fetch from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=""), flags=re.DOTALL)
    file.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
