"""`relay topic`: the source topic, which relays read and never make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.cli.options import config_argument, pipelines_of
from relay.operate.source_topic.create import create as create_topic
from relay.operate.source_topic.plan import Wanted
from relay.program.command import WholeGroup
from relay.program.plural import several

if TYPE_CHECKING:
    from relay.config.pipelines import Pipeline
    from relay.operate.source_topic.plan import Decided


@click.group(cls=WholeGroup)
def topic() -> None:
    """The source topic: make it.

    \b
    relay topic create relay.toml
    """


@topic.command()
@config_argument
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="Each belongs to one relay process at a time.  [default: 12, with one broker 4]",
)
@click.option(
    "--replication", type=click.IntRange(1, 100), help="Copies.  [default: kafka.replication]"
)
@click.option(
    "--anew",
    is_flag=True,
    help="Also where this app has read a topic before, which was deleted: its relays stop at the "
    "new one until `relay accept`.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be made.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per source topic.")
def create(
    config_file: Path,
    partitions: int | None,
    replication: int | None,
    *,
    anew: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make the source topic, source.topic, if it is not there; of each pipeline where there are.

    Relays never make it: a name with a spelling mistake would be an empty topic. One that is
    there is left as it is. With three copies or more, min.insync.replicas is 2; everything else
    is the brokers' default. Partitions can be added later, and never taken away.

    \b
    relay topic create relay.toml
    relay topic create relay.toml --partitions 24 --replication 3
    Exit status: 0 it is there · 2 it cannot be made so, or is there and not as asked ·
    4 brokers away · 5 brokers refused · 6 this app has read another topic of that name.
    """
    for pipeline in pipelines_of(config_file):
        settings = pipeline.settings
        wanted = Wanted(
            settings.source.topic,
            settings.app,
            partitions,
            replication,
            settings.kafka.replication,
            anew,
        )
        _print(pipeline, create_topic(settings, wanted, dry_run=dry_run), dry_run, as_json)


def _print(pipeline: Pipeline, decided: Decided, dry_run: bool, as_json: bool) -> None:  # noqa: FBT001
    name = pipeline.settings.source.topic
    if as_json:
        told = {
            "topic": name,
            "created": decided.made and not dry_run,
            "partitions": decided.partitions,
            "replication": decided.replication,
            "settings": decided.settings,
            "notes": decided.notes,
            **({"pipeline": pipeline.name} if pipeline.name else {}),
        }
        click.echo(json.dumps(told))
        return
    does = "would be created" if dry_run else "created"
    state = does if decided.made else "is there, nothing was changed"
    sizes = f"{several(decided.partitions, 'partition')}, replication {decided.replication}"
    more = "".join(f", {key} = {value}" for key, value in decided.settings.items())
    click.echo(f"topic {name}: {state}: {sizes}{more}")
    for note in decided.notes:
        click.echo(f"note: {note}")
