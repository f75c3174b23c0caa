"""A campaign over two clusters: options, faults for a time, the verdict, and what is left of it."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tests.chaos.clusters import SIDES, Clusters, judge
from tests.chaos.command import run_options, seed_of

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable


def side_options(command: Callable[..., None]) -> Callable[..., None]:
    """Of the campaigns with two clusters."""
    seconds = click.option("--seconds", default=300.0, show_default=True, help="Of faults.")
    return run_options(seconds(command))


def carry_out(
    start: Callable[[Path], contextlib.AbstractContextManager[Clusters]],
    inflict: Callable[[Clusters, random.Random], str],
    options: dict[str, Any],
) -> None:
    """Faults for a time, the verdict, and what is left of it; exits with 1 if it is red.

    Args:
        start: servers and programs in a directory.
        inflict: one fault, and what has to be true while it lasts; its name.
        options: of the command line, as `side_options` has them.
    """
    seed = seed_of(options)
    chance, done, why = random.Random(seed), Counter[str](), ""
    verdict: dict[str, Any] = {}
    directory = options["keep"] or Path(tempfile.mkdtemp(prefix="block-relay-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    with start(directory) as clusters:
        try:
            for name in clusters.sides:
                clusters.until(lambda name=name: clusters.rows(name) > 0, f"rows of {name}")  # type: ignore[misc]
            deadline = time.monotonic() + options["seconds"]
            while time.monotonic() < deadline:
                done[inflict(clusters, chance)] += 1
            verdict = judge(clusters)
        except AssertionError as failed:  # no progress, or an end that nothing excuses
            why = str(failed)
    good = not (why or verdict["missing"] or verdict["too many"] or verdict["verify"])
    result = {"seed": seed, "faults": dict(done), **verdict, "why": why, "good": good}
    click.echo(json.dumps(result, indent=None if options["as_json"] else 2))
    if good and options["keep"] is None:
        shutil.rmtree(directory)
    else:
        for side in SIDES:
            shutil.rmtree(directory / side, ignore_errors=True)
        click.echo(f"configuration and logs are in {directory}", err=True)
    if not good:
        sys.exit(1)
