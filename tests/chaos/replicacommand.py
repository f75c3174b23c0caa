"""The command `python -m tests.chaos replicas`: servers, rounds, and the verdict."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from relay.dev import stack
from tests.chaos.clusters import broker_alone
from tests.chaos.command import run_options, seed_of
from tests.chaos.history import History, commit, versions
from tests.chaos.programs import Program
from tests.chaos.replicas import MODES, Campaign, run
from tests.replicas.journal import Replicated
from tests.replicas.rig import Rig
from tests.replicas.unguarded import GUARDS


@click.command()
@run_options
@click.option("--seconds", default=120.0, show_default=True, help="Of rounds.")
@click.option("--every", default=3.0, show_default=True, help="Seconds between faults, on average.")
@click.option("--mode", type=click.Choice(MODES), help="How loaders reach them; default: in turn.")
@click.option(
    "--loader",
    type=click.Choice(["spark", "bare"]),
    default="spark",
    show_default=True,
    help="Of the two loaders the first; the second is bare.",
)
@click.option(
    "--without",
    type=click.Choice(GUARDS),
    help="Take a guard away. The verdict should be red.",
)
def replicas(**options: Any) -> None:
    """Three replicas of ClickHouse: kills, stops, lags, a lost coordinator, two loaders."""
    seed = options["seed"] = seed_of(options)
    keep = options.pop("keep")
    directory = (keep or Path(tempfile.mkdtemp(prefix="block-relay-chaos-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    history = History(directory / "history.jsonl")
    as_json = options.pop("as_json")
    given = {key: value for key, value in options.items() if value is not None}
    history.write("campaign", command="replicas", options=given)
    history.write("begun", versions=versions(), commit=commit())
    click.echo(f"seed {seed}", err=True)
    begun, broker = time.monotonic(), directory / "broker"
    campaign: Campaign | None = None
    try:
        bootstrap = broker_alone(broker)
        with Rig(directory / "rig") as rig:
            journal = Replicated(bootstrap, rig, "chaos", directory)
            campaign = Campaign(rig, journal, history, lambda s: click.echo(s, err=True), options)
            try:
                run(campaign, options["seconds"])
            finally:
                _end(campaign.loaders)
    finally:
        stack.down(broker)
        history.close()
    clean = not campaign.anomalies
    result = {
        "seed": seed,
        "clean": clean,
        "seconds": round(time.monotonic() - begun),
        "anomalies": dict(campaign.anomalies),
        **campaign.figures(),
    }
    click.echo(json.dumps(result, indent=None if as_json else 2))
    click.echo(f"replicas: {'clean' if clean else 'RED'}, seed {seed}", err=True)
    for name in ("rig", "broker") if keep or not clean else ():
        shutil.rmtree(directory / name, ignore_errors=True)
    if clean and not keep:
        shutil.rmtree(directory)
    else:
        click.echo(f"history and logs are in {directory}", err=True)
    sys.exit(0 if clean else 1)


def _end(programs: list[Program]) -> None:
    for program in programs:
        program.wanted = False
        program.kill()
