"""`loader parked`: lists blocks that wait for a person or their table, and settles them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from loader.cli.options import config_argument, settings_of
from loader.core.plan import DEAD, DISCARDED, LOADED, Human
from loader.journal.startup import ledger_of
from loader.operate import status
from relay.errors import ErrorPage, Refused
from relay.program.command import WholeGroup, one_of
from relay.program.json_output import print_json, print_lines
from relay.program.plural import several
from relay.records_pb2 import Block

WANTED = {"discard": DISCARDED, "dead": DEAD}
"""The state that a block is to have after a person's word; after any other it is loaded."""


@click.group(cls=WholeGroup)
def parked() -> None:
    """List and settle blocks that the loader cannot load by itself.

    A parked block waits for a person, because nothing proves what became of its rows or because
    its table refuses them for good. A block that is set aside waits for its table or for a limit
    that it exceeds: a running loader retries it at least every two minutes.

    \b
    loader parked ls relay.toml
    loader parked resolve relay.toml shop:shop.orders:0:0:1200 --retry
    """


@parked.command("ls")
@config_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_parked(config_file: Path, *, as_json: bool) -> None:
    """List blocks that are parked or set aside, with rows and reasons.

    A claimed block is being settled by somebody right now, or that was interrupted. It is safe to
    settle it again.

    \b
    loader parked ls relay.toml
    loader parked ls relay.toml --json | jq -r .id
    """
    ledger = ledger_of(settings_of(config_file))
    waiting = ledger.waiting() if ledger.exists() else []
    for entry in waiting:
        if as_json:
            print_json(status.parked_as_json(entry))
            continue
        since = datetime.fromtimestamp(entry.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        claimed = "  (claimed)" if entry.claimed and not entry.aside else ""
        aside = f"set aside, {status.tried(entry)}: " if entry.aside else ""
        aside += "to become dead letters: " if entry.block.to_dead_letters else ""
        said = f"{since} UTC  {aside}{entry.reason}{claimed}"
        click.echo(f"{entry.block.id}  {entry.block.rows:,} rows  {said}")
    if not waiting:
        click.echo("no parked blocks", err=True)


@parked.command()
@config_argument
@click.argument("blocks", nargs=-1, required=True, metavar="BLOCK...")
@one_of("human", "--retry", "retry", "Try again, because you have fixed the cause.")
@one_of(
    "human",
    "--insert",
    "absent",
    "Insert the rows, because you have checked that the table has none of them.",
)
@one_of(
    "human",
    "--loaded",
    "loaded",
    "Mark the block as loaded, because you have checked that the table has all of its rows.",
)
@one_of(
    "human",
    "--discard",
    "discard",
    "Never load the block: give its rows up. Needs --why. Without --run the command only "
    "prints what would be given up. The ledger records it, and `relay verify` keeps reporting it.",
)
@one_of(
    "human",
    "--dead",
    "dead",
    "Make dead letters of messages that were left out of a block (BLOCK:left-out), each once. "
    "Without --run the command only prints which. They are read from the source topic again; what "
    "is deleted there stays parked.",
)
@click.option(
    "--why",
    default="",
    metavar="TEXT",
    help="Your reason; the ledger keeps it. Required with --discard.",
)
@click.option(
    "--run",
    "for_real",
    is_flag=True,
    help="With --discard or --dead: really do it. The other options act at once.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per block, or per message."
)
def resolve(
    config_file: Path,
    blocks: tuple[str, ...],
    human: Human | None,
    why: str,
    *,
    for_real: bool,
    as_json: bool,
) -> None:
    """Settle BLOCKs that are not loaded: "all" means every parked one, "aside" every one set aside.

    The command acts at once and under a claim, as a loader does: running loaders need no restart
    and cannot interfere, and a second resolve of the same block is refused. Any block in the
    journal that is not loaded can be settled, parked or not.

    If the table has the block-id column, its row count overrides you: --loaded is refused unless
    all rows are there, and a block whose rows are all there is marked loaded even under --discard.
    Rows that a discarded block has in the table stay there.

    Messages that the table refuses are left out of the block, as a loader does it. They are a block
    of their own (BLOCK:left-out), which has its own line if it is parked. The exit status is 5 if a
    block, or such a part of it, could not be settled as you asked.

    \b
    loader parked resolve relay.toml shop:shop.orders:0:0:1200 --retry
    loader parked resolve relay.toml shop:shop.orders:0:0:1200 --discard --why 'test rows' --run
    loader parked resolve relay.toml shop:shop.orders:0:0:1200:left-out --dead --run
    """
    human = _check(human, why, for_real=for_real)
    from loader.operate.resolve import chosen  # noqa: PLC0415 - Kafka and Arrow
    from loader.operate.resolve import resolve as settle  # noqa: PLC0415 - likewise

    settings = settings_of(config_file)
    if human in {"discard", "dead"} and not for_real:
        waiting = chosen(settings, ledger_of(settings), blocks, dead=human == "dead")
        print_lines(_preview(waiting, human, as_json=as_json))
        return
    wanted = WANTED.get(human, LOADED)
    left = 0
    for block, outcome, reason in settle(settings, ledger_of(settings), blocks, human, why):
        if as_json:
            said = {"block": block, "outcome": outcome, "reason": reason}
            print_json({**said, "done": outcome == wanted})
        else:
            click.echo(f"{block}: {outcome}{': ' + reason if reason else ''}")
        left += outcome != wanted
    if left:
        raise Refused(
            f"{several(left, 'block is', 'blocks are')} not {wanted}",
            "Read the reasons above, correct what they name, and run it again.",
            page=ErrorPage.PARKED,
        )


def _check(human: Human | None, why: str, *, for_real: bool) -> Human:
    """Return what the person says of the blocks, if the other options go with it."""
    if human is None:
        raise click.UsageError("Say what to do: --retry, --insert, --loaded, --discard or --dead.")
    if human == "discard" and not why.strip():
        raise click.UsageError(
            "--discard gives the blocks' rows up: give your reason with --why TEXT."
        )
    if for_real and human not in {"discard", "dead"}:
        raise click.UsageError("--run goes with --discard or --dead; the others do it at once.")
    return human


def _preview(
    blocks: Mapping[str, Block], human: Human, *, as_json: bool
) -> Iterator[str | dict[str, object]]:
    """Yield what a --run would do, for people or for programs."""
    if not as_json:
        yield from (given_up if human == "discard" else to_dead_letters)(blocks.values())
        nothing = "nothing was done; add --run to do it"
        yield nothing if blocks else "no such block is parked or set aside"
        return
    for name, block in blocks.items():
        line = {"block": name, "table": block.table, "outcome": WANTED[human], "done": False}
        if human == "discard":
            yield {**line, "rows": block.rows}
            continue
        for one in block.left_out:
            place = {"partition": block.partition, "offset": one.offset, "reason": one.reason}
            yield {**line, "source_topic": block.source_topic, **place}


def to_dead_letters(blocks: Collection[Block]) -> Iterator[str]:
    """Return which messages a --dead of these blocks would make dead letters."""
    for block in blocks:
        for message in block.left_out:
            place = f"{block.source_topic} {block.partition}:{message.offset}"
            yield f"would become a dead letter: {place}, of {block.table}: {message.reason}"


def given_up(blocks: Collection[Block]) -> Iterator[str]:
    """Return what a --discard of these blocks would give up: each, and by table."""
    tables: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for block in blocks:
        yield f"--run would give up: {block.id}  {block.rows:,} rows of {block.table}"
        tables[block.table] += 1
        rows[block.table] += block.rows
    for table, count in sorted(tables.items()):
        yield f"{table}: {several(count, 'block')}, {several(rows[table], 'row')}"
