"""`python -m tests.chaos upgrade`: a rolling upgrade from an older commit, and the way back.

Takes relay and loader of the older commit out of git, and replaces one program at a time by the
other version's, in the order of relay/docs/upgrade.md. Relays and loader are killed, stopped and
paused meanwhile, so both versions take each other's partitions and blocks. After each step all
rows have to be there, and this version's `relay verify --deep` finds nothing.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from configparser import ConfigParser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tests.chaos import campaigns
from tests.chaos.command import common_options, run_command
from tests.chaos.programs import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.campaign import Campaign
    from tests.chaos.programs import Program

OLDER, NEWER = VERSIONS = ("older", "newer")
KINDS = (
    *("kill_relay", "failpoint", "pause_relay", "pause_at", "restart_relay", "join"),
    *("kill_loader", "loader_failpoint"),
)
VERIFY_SECONDS = 300.0
_REPOSITORY = Path(__file__).resolve().parents[2]
_SIGN = "a process of the older commit has imported"
"""What older packages write when they are imported. A program of the wrong version would otherwise
look right."""


@dataclass(frozen=True, slots=True)
class Step:
    """One replacement.

    Attributes:
        program: name of the one that gets the version; empty where none is replaced.
        version: one of VERSIONS.
    """

    program: str
    version: str


def steps(first: str, relays: Sequence[str], loader: str) -> Iterator[Step]:
    """From this version to the other one, and back again, by relay/docs/upgrade.md.

    An upgrade begins with the loader, and the way back with the relays: a loader always knows
    the blocks of all relays that run.
    """
    upgrade = [Step(program, NEWER) for program in (loader, *relays)]
    downgrade = [Step(program, OLDER) for program in (*relays, loader)]
    yield Step("", first)
    yield from upgrade + downgrade if first == OLDER else downgrade + upgrade


def roll(campaign: Campaign, first: str, code: Path, seconds: float) -> dict[str, Any]:
    """Take every step: replace, faults for a while, and a pause in which all has to arrive.

    Args:
        campaign: runs, all its programs of the `first` version.
        first: one of VERSIONS.
        code: of the older version.
        seconds: of faults.
    """
    named = {program.name: program for program in [*campaign.members, *campaign.loaders]}
    relays = [program.name for program in campaign.members]
    taken = 0
    for number, step in enumerate(steps(first, relays, campaign.loaders[0].name)):
        campaign.say(f"{step.program or 'all'}: {step.version}")
        campaign.code = code if step.version == OLDER else None  # of a relay that joins for a while
        if step.program:
            _replace(campaign, named[step.program])
        campaigns.faults(campaign, number, KINDS, 3.0, seconds)
        for program in named.values():
            _check_version(campaign, program)
        _verify(campaign)
        taken += 1
    return {"steps": taken}


def _replace(campaign: Campaign, program: Program) -> None:
    """Stop it with SIGTERM; the crew starts it again, of the other version."""
    runs = len(program.ends)
    program.code = campaign.code
    program.ask_to_end()
    limit = 60.0 * campaign.options.patience
    campaign.until(
        lambda: len(program.ends) > runs and program.runs(), limit, f"a new {program.name}"
    )


def _check_version(campaign: Campaign, program: Program) -> None:
    """By what it wrote itself, not by what this campaign believes that it started."""
    if (_SIGN in program.said()) != (program.code is not None):
        campaign.anomaly(f"{program.name} is not of the version that it should be")


def _verify(campaign: Campaign) -> None:
    command = [str(Path(sys.executable).parent / "relay"), "verify", campaign.config, "--deep"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=VERIFY_SECONDS
    )
    if done.returncode != 0:
        campaign.anomaly(f"relay verify --deep ended with {done.returncode}", done.stdout)


def take_out(revision: str, directory: Path) -> None:
    """Write relay and loader of a commit into a directory, so that they say who they are.

    Raises:
        click.ClickException: git does not know the commit.
    """
    command = ["git", "archive", "--format=tar", revision, "relay", "loader", "setup.cfg"]
    done = subprocess.run(command, check=False, cwd=_REPOSITORY, capture_output=True)
    if done.returncode != 0:
        raise click.ClickException(f"git archive {revision}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(directory, filter="data")
    for package in ("relay", "loader"):
        with (directory / package / "__init__.py").open("a", encoding="utf-8") as file:
            file.write(f'import sys\nsys.stderr.write("{_SIGN} {package}\\n")\n')
    _write_scripts(directory)


def _write_scripts(directory: Path) -> None:
    """As an installation does: which function a command calls may differ from this version's."""
    setup = ConfigParser()
    setup.read(directory / "setup.cfg", encoding="utf-8")
    (directory / SCRIPTS).mkdir()
    for line in setup["options.entry_points"]["console_scripts"].split("\n"):
        if line:
            name, module, function = re.split(r"\s*[=:]\s*", line)
            script = directory / SCRIPTS / name
            script.write_text(
                # A process that a program spawns imports this file, too, and must not run it.
                f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\n"
                f"if __name__ == '__main__':\n    sys.exit({function}())\n",
                encoding="utf-8",
            )
            script.chmod(0o755)


@click.command()
@common_options
@click.option("--older", required=True, help="The older commit, of this repository.")
@click.option(
    "--first",
    type=click.Choice(VERSIONS),
    default=OLDER,
    show_default=True,
    help="What all programs begin with, and are at again in the end.",
)
@click.option("--members", default=2, show_default=True, help="Relays.")
@click.option("--seconds", default=20.0, show_default=True, help="Of faults after each step.")
def upgrade(older: str, first: str, members: int, seconds: float, **o: Any) -> None:
    """Replace an older commit's relays and loader by these, one by one, and go back."""
    with tempfile.TemporaryDirectory(prefix="block-relay-older-") as directory:
        code = Path(directory)
        take_out(older, code)
        run_command(
            "upgrade",
            partial(roll, first=first, code=code, seconds=seconds),
            {"members": members, "code": code if first == OLDER else None},
            {"older": older, "first": first, "members": members, "seconds": seconds},
            o,
            default_loader="spark",
        )
