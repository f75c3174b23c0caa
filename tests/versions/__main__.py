"""`python -m tests.versions [26.3 …]`: the loader's guards on each engine version.

Each version runs in an environment of its own, which is made at the first run; one broker serves
all. Prints a table and writes it as markdown. Exit status: 0 all green, 1 something is red.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from relay.dev import broker, layout
from relay.operate.doctor.versions import OLDEST, parsed
from tests.jvms import live_shortly
from tests.versions import guards
from tests.versions.engines import Engine
from tests.versions.guards import GUARDS, Absent, Bench, Red
from tests.versions.releases import RELEASES, Release, by_engine
from tests.versions.rollback import rolled_back
from tests.versions.users import STRICT

ROLLBACK = "rolled back from the newest while the loader runs"
NOT_ON: dict[str, dict[str, str]] = {
    "25.8": {"an INSERT that still runs is seen by its comment": "one connection at a time"},
}
"""Guards that an engine cannot be asked here, with the reason."""


@dataclass
class Verdict:
    """Of one version.

    Attributes:
        version: as the server gives it.
        seen: by guard: empty where it held, else what was seen.
        absent: by guard: why it was not run.
    """

    release: Release
    version: str = ""
    seen: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def red(self) -> dict[str, str]:
        return {name: seen for name, seen in self.seen.items() if seen}

    @property
    def green(self) -> bool:
        return bool(self.seen) and not self.red


def run(release: Release, bootstrap: str, directory: Path, only: str = "") -> Verdict:
    """All guards on one version, each on tables of its own."""
    verdict, begun = Verdict(release), time.monotonic()
    users = [user for user, _ in guards.rights_users(release.engine)]
    engine = Engine(release, directory / "server", users, more=STRICT)
    engine.start()
    try:
        bench = Bench(engine, bootstrap, directory / "app")
        verdict.version = str(bench.client.command("SELECT version()"))
        for name, check in GUARDS.items():
            if only in name:
                _one(verdict, name, lambda check=check: check(bench))
        bench.close()
    finally:
        engine.kill()
    newest = RELEASES[-1]
    if release is not newest and only in ROLLBACK:
        place = directory / "rollback"
        _one(verdict, ROLLBACK, lambda: rolled_back(newest, release, bootstrap, place))
    verdict.seconds = time.monotonic() - begun
    return verdict


def _one(verdict: Verdict, name: str, check: object) -> None:
    absent = NOT_ON.get(verdict.release.engine, {}).get(name)
    if absent is not None:
        verdict.absent[name] = absent
        return
    begun = time.monotonic()
    try:
        check()  # type: ignore[operator]
        verdict.seen[name] = ""
    except Absent as why:
        verdict.absent[name] = str(why)
    except Red as red:
        verdict.seen[name] = str(red)
    except Exception:  # noqa: BLE001 - a guard that breaks is red, and the next is run
        verdict.seen[name] = traceback.format_exc(limit=-3)
    state = verdict.absent.get(name) or verdict.seen.get(name) or "held"
    click.echo(f"  {time.monotonic() - begun:5.1f} s  {name}: {state}")


def markdown(verdicts: Sequence[Verdict]) -> str:
    """The table for relay/docs/clickhouse-versions.md."""
    lines = ["| ClickHouse | engine of | run on it | verdict |", "|---|---|---|---|"]
    for one in verdicts:
        way = "whole server" if one.release.listens else "behind an HTTP front"
        absent = "".join(f"; not run: {name} ({why})" for name, why in one.absent.items())
        said = "green" if one.green else f"red: {'; '.join(one.red) or 'it did not start'}"
        package = f"`{one.release.package}` {one.release.version}, {way}"
        lines.append(
            f"| {one.version or one.release.engine} | {package} "
            f"| {len(one.seen)} guards{absent} | {said} |"
        )
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("engines", nargs=-1, metavar="[VERSION]...")
@click.option("--only", default="", help="Guards with this in their name.")
@click.option("--markdown", "path", type=click.Path(path_type=Path), help="Also write the table.")
def main(engines: tuple[str, ...], only: str, path: Path | None) -> None:
    """Run the loader's guards on these versions of ClickHouse, as 26.3; on all without any."""
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
    live_shortly()
    try:
        releases = [by_engine(engine) for engine in engines] or list(RELEASES)
    except KeyError as error:
        known = ", ".join(release.engine for release in RELEASES)
        raise click.UsageError(f"no version {error}; there are {known}") from error
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        directory = Path(name).resolve()
        plan, _ = layout.decide(directory, 1, 0, 0)
        layout.write(directory, plan)
        broker.launch(directory, 0, plan)
        try:
            broker.await_ready(directory, 0, plan)
            for release in releases:
                click.echo(f"{release.engine} ({release.package} {release.version})")
                verdicts.append(run(release, plan.bootstrap, directory / release.engine, only))
        finally:
            broker.kill(directory, 0)
    table = markdown(verdicts)
    click.echo(f"\n{table}")
    if path is not None:
        path.write_text(table)
    green = [parsed(one.release.engine) for one in verdicts if one.green]
    if not engines and not only and green:
        click.echo(f"oldest green: {green[0]}; said to be supported: {OLDEST}")
    sys.exit(0 if all(one.green for one in verdicts) else 1)


if __name__ == "__main__":
    main()
