"""`relay topic`: creates the source topic, which relays only read."""

from __future__ import annotations

from pathlib import Path

import click

from relay.cli.options import config_argument, pipelines_of
from relay.config.pipelines import Pipeline
from relay.operate.source_topic.create import create as create_topic
from relay.operate.source_topic.plan import Decided, Wanted
from relay.program.command import WholeGroup
from relay.program.json_output import print_json
from relay.program.plural import several


@click.group(cls=WholeGroup)
def topic() -> None:
    """Create the source topic, which relays only read.

    \b
    relay topic create relay.toml
    """


@topic.command()
@config_argument
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="Number of partitions; at most as many relay processes can share the topic.  "
    "[default: 12, with one broker 4]",
)
@click.option(
    "--replication",
    type=click.IntRange(1, 100),
    help="Replicas of each partition. If kafka.replication is not set either, three, or as many as "
    "there are brokers.  [default: kafka.replication]",
)
@click.option(
    "--anew",
    is_flag=True,
    help="Create the topic even if this app has read a topic of this name, which was deleted: its "
    "relays stop at the new topic until `relay accept`.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be created, and create nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per source topic.")
def create(
    config_file: Path,
    partitions: int | None,
    replication: int | None,
    *,
    anew: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create the source topic (source.topic) of each pipeline, if it does not exist.

    Relays never create it: from a misspelt name they would make an empty topic. An existing topic
    is left as it is. With three replicas or more, min.insync.replicas is 2; every other setting
    is the brokers' default. Partitions can be added later, but never removed.

    \b
    relay topic create relay.toml
    relay topic create relay.toml --partitions 24 --replication 3
    Exit status: 0 the topic exists · 2 it cannot be created, or exists and differs from the
    options · 4 no broker answered · 5 the brokers refused · 6 this app has read a topic of this
    name that was deleted.
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
        fields = {
            "topic": name,
            "created": decided.made and not dry_run,
            "partitions": decided.partitions,
            "replication": decided.replication,
            "settings": decided.settings,
            "notes": decided.notes,
            **({"pipeline": pipeline.name} if pipeline.name else {}),
        }
        print_json(fields)
        return
    does = "would be created" if dry_run else "created"
    state = does if decided.made else "exists, nothing was changed"
    sizes = f"{several(decided.partitions, 'partition')}, replication {decided.replication}"
    more = "".join(f", {key} = {value}" for key, value in decided.settings.items())
    click.echo(f"topic {name}: {state}: {sizes}{more}")
    for note in decided.notes:
        click.echo(f"note: {note}")
