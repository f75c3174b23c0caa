"""`relay dead`: lists messages that could not become rows, shows one, and sends them again."""

from __future__ import annotations

import contextlib
import heapq
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from relay import names
from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.cli.arguments import INSTANT, TABLE, Parsed
from relay.cli.named_files import refuse_unwritable, write_file
from relay.cli.options import config_argument, settings_of, within_one_cluster
from relay.cli.output import dead as output_dead
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import Refused
from relay.operate.dead import inspect, replay_plan
from relay.operate.dead.reader import DeadReader
from relay.operate.dead.replay import Replay
from relay.operate.dead.replay_plan import ReplayMark, ReplayMessage, ReplayTally, Why
from relay.operate.dead.selection import Selection, summary
from relay.operate.doctor.fixes import set_topic
from relay.operate.rewind.rewinds_reader import RewindsReader
from relay.program.command import WholeGroup
from relay.program.console import console_of, print_parts
from relay.program.json_output import print_json, print_lines
from relay.program.plural import several
from relay.program.spelling import did_you_mean_table
from relay.rows.row_codec import RowCodec
from relay.schema.dead_reason import DeadKind
from relay.schema.registry import read_to_its_end
from relay.schema.types.column_type import UnsupportedType

_RECORDS_WIDTH = 140  # columns, where there is no terminal to ask
_PLACE = Parsed("partition:offset", RecordPlace.parse)


def _selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select dead letters; the function gets them as Selection does."""
    for option in (
        click.option(
            "--partition",
            type=click.IntRange(min=0),
            help="Choose only messages of this source partition.",
        ),
        click.option(
            "--until",
            "until_ms",
            type=INSTANT,
            help="Choose only dead letters written before this time; same form as --since.",
        ),
        click.option(
            "--since",
            "since_ms",
            type=INSTANT,
            help="Choose only dead letters written since this time: ISO 8601 (UTC if it names no "
            "zone), or an age such as 2h or 7d.",
        ),
        click.option(
            "--kind",
            "kinds",
            type=click.Choice([kind.value for kind in DeadKind]),
            metavar="KIND",
            multiple=True,
            callback=lambda _context, _option, chosen: frozenset(map(DeadKind.read, chosen)),
            help="Choose only dead letters of this kind of reason, such as unknown-table; give "
            "the option again for more kinds.",
        ),
        click.option(
            "--reason",
            type=Parsed("regex", re.compile),
            help="Choose only dead letters whose reason matches.",
        ),
        click.option(
            "--table",
            help='Choose only dead letters whose header names this table; "" for no table.',
        ),
    ):
        command = option(command)
    return command


@click.group(cls=WholeGroup)
def dead() -> None:
    """List, show and replay dead letters: messages that could not become rows.

    \b
    relay dead ls --summary
    relay dead show 0:17
    relay dead replay --table shop.orders --since 2h --run
    """


@dead.command("ls")
@config_argument
@_selection_options
@click.option(
    "--summary", "grouped", is_flag=True, help="Print counts by table, kind of reason and field."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="List only the latest; 0 lists all, and --json and --summary always have all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_dead(
    config_file: Path, limit: int, *, grouped: bool, as_json: bool, **wanted: Any
) -> None:
    """List dead letters: time, table, reason, place in the source topic, and whether replayed.

    \b
    relay dead ls --table shop.orders --since 2h
    relay dead ls --kind does-not-fit --json | jq .reason
    relay dead ls --summary
    """
    tables: set[str] = set()
    with contextlib.closing(DeadReader(settings_of(config_file), incomplete=True)) as reader:
        marks = _read_marks(reader)
        chosen = filter(Selection(**wanted).means, _note_tables(reader.letters(), tables))
        if grouped:
            groups = summary((letter, letter.place in marks) for letter in chosen)
            if as_json:
                print_lines(map(output_dead.group_as_json, groups))
            else:
                console = console_of(_RECORDS_WIDTH)
                print_parts(console, output_dead.group_table(list(groups), console.width))
        elif as_json:
            print_lines(output_dead.as_json(letter, marks.get(letter.place)) for letter in chosen)
        else:
            _print_table(chosen, marks, limit)
    _warn_of_unknown(wanted["table"], tables)


def _warn_of_unknown(table: str | None, tables: Collection[str]) -> None:
    if table and table not in tables:
        hint = did_you_mean_table(table, tables)
        click.echo(f"no dead letter names table {table}{hint}", err=True)


def _note_tables(letters: Iterable[DeadLetter], tables: set[str]) -> Iterator[DeadLetter]:
    """Yield the dead letters; add to `tables` those that they name."""
    for letter in letters:
        tables.add(letter.table)
        yield letter


def _print_table(
    chosen: Iterator[DeadLetter], marks: dict[RecordPlace, ReplayMark], limit: int
) -> None:
    counted = 0

    def counting() -> Iterator[DeadLetter]:
        nonlocal counted
        for letter in chosen:
            counted += 1
            yield letter

    age = operator.attrgetter("when_ms", "place")
    if limit:
        shown = heapq.nlargest(limit, counting(), key=age)[::-1]
    else:
        shown = sorted(counting(), key=age)
    if not shown:
        click.echo("no dead letters", err=True)
        return
    console = console_of(_RECORDS_WIDTH)
    print_parts(console, output_dead.letter_table(shown, marks, console.width))
    if counted > len(shown):
        click.echo(f"the latest {len(shown)} of {counted:,}; --limit 0 shows all", err=True)


@dead.command()
@config_argument
@click.argument("place", type=_PLACE, metavar="PARTITION:OFFSET")
@click.option(
    "--raw",
    type=click.Path(path_type=Path),
    help="Also write the message's value to this file, byte for byte.",
)
@click.option(
    "--bytes", "most", type=int, default=512, show_default=True, help="Length of the hexdump."
)
@click.option("--as-table", type=TABLE, help="Decode the rows as rows of this table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(
    config_file: Path,
    place: RecordPlace,
    raw: Path | None,
    most: int,
    as_table: str | None,
    *,
    as_json: bool,
) -> None:
    """Show one dead letter: reason, headers, bytes, and its rows as far as they can be decoded.

    PARTITION:OFFSET is its place in the dead letter topic; `relay dead ls` lists it.

    \b
    relay dead show 0:17
    relay dead show 0:17 --raw message.bin
    """
    settings = settings_of(config_file)
    if raw is not None:
        refuse_unwritable(raw)
    with contextlib.closing(DeadReader(settings, incomplete=True)) as reader:
        letter = next(reader.letters([place]))
        mark = _read_marks(reader).get(place)
    rows = _decode_rows(settings, letter, as_table or letter.table)
    if raw is not None:
        write_file(raw, letter.value or b"")
    if as_json:
        print_json(output_dead.letter_as_json(letter, mark, rows))
        return
    click.echo("\n".join(output_dead.describe_letter(letter, mark, rows, most)))


def _decode_rows(settings: Settings, letter: DeadLetter, table: str) -> inspect.Rows:
    """The message's rows by the table's current row message, if the registry has one."""
    schema = read_to_its_end(settings.kafka, settings.app).current(table)
    if schema is None:
        return inspect.Rows([], f"not decoded as rows: the schema registry has no table {table!r}")
    try:
        codec = RowCodec(schema)
    except (UnsupportedType, ValueError) as problem:
        return inspect.Rows([], f"not decoded as rows: {problem}")
    return inspect.rows_of(letter.value, codec, settings.source.framing)


@dead.command()
@config_argument
@click.argument("places", nargs=-1, type=_PLACE, metavar="[PARTITION:OFFSET]...")
@_selection_options
@click.option("--as-table", type=TABLE, help="Send the messages with this table in their header.")
@click.option(
    "--despite-rewinds",
    is_flag=True,
    help="Also send messages that a rewind had read again, or of which the journal no longer says "
    "whether one had; those that became rows come twice.",
)
@click.option(
    "--despite-replays",
    is_flag=True,
    help="Also send messages of which nobody knows whether they were replayed, since marks of "
    "replays were deleted; those that became rows come twice.",
)
@click.option(
    "--run",
    is_flag=True,
    help="Send them. Without --run the command only prints what it would send.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(
    config_file: Path,
    places: tuple[RecordPlace, ...],
    as_table: str | None,
    *,
    despite_rewinds: bool,
    despite_replays: bool,
    run: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Send the messages of dead letters to the source topic again, each exactly once.

    A message goes to its old partition with its old value, key and headers, and the current time.
    The same transaction marks it as replayed, so a replay that was killed, or that was started
    twice, can simply be run again. Where the topic refuses a message as too large, all others are
    sent; the command ends with status 5 and says which limit suffices.

    \b
    relay dead replay --table shop.orders --kind unknown-table
    relay dead replay --table shop.orders --kind unknown-table --run
    relay dead replay 0:17 0:18 --as-table shop.orders --run
    """
    settings = settings_of(config_file)
    step = (
        "`relay dead show PLACE --raw FILE` writes a message's bytes to a file: produce them "
        "again yourself"
    )
    within_one_cluster(settings, "dead replay", step)
    tally, tables = ReplayTally(), set[str]()
    with contextlib.ExitStack() as stack:
        reader = DeadReader(settings, incomplete=despite_replays)
        stack.callback(reader.close)
        _warn_of_no_marks(settings, reader)
        letters = _note_tables(reader.letters(places), tables)
        chosen = filter(Selection(**wanted).means, letters)
        if as_table:
            _warn_of_unregistered(settings, as_table)
        decide = partial(replay_plan.decide, source_topic=settings.source.topic, as_table=as_table)
        rewinds = None
        if not despite_rewinds:
            rewinds = RewindsReader(settings, reader.topic_id)
            stack.callback(rewinds.close)
            decide = partial(decide, left_out=rewinds.left_out)
        if run:
            sender = Replay(settings, reader, rewinds.left_out_now if rewinds else lambda _: {})
            stack.callback(sender.close)
            sender.start()
            decided = _count_answers(map(partial(decide, marks=sender.marks), chosen), tally)
            for batch in replay_plan.batches(decided):
                for message, why in sender.send(batch):
                    tally.take_back(message, why)
        else:
            for _ in _count_answers(map(partial(decide, marks=reader.marks()), chosen), tally):
                pass
    _warn_of_unknown(wanted["table"], tables)
    if as_json:
        print_json(output_dead.tally_as_json(tally, settings.source.topic, done=run))
    else:
        click.echo("\n".join(output_dead.describe_tally(tally, settings.source.topic, done=run)))
    if tally.too_large:
        raise _too_large(settings, tally.too_large)


def _too_large(settings: Settings, refused: Mapping[RecordPlace, int]) -> Refused:
    """The error that ends a replay which sent all others: what these letters' messages need."""
    topic = settings.source.topic
    place, largest = max(refused.items(), key=operator.itemgetter(1))
    raising = set_topic(settings.kafka, topic, max_message_bytes=largest)
    of_client = int(kafka_clients.producer(settings)["message.max.bytes"])
    if largest > of_client:
        raising += f"; and message.max.bytes in [kafka.client], which is {of_client:,}"
    return Refused(
        f"topic {topic} refused {several(len(refused), 'message')} as too large; the largest, of "
        f"dead letter {place}, needs {largest:,} bytes",
        f"raise its limit ({raising}), or set compression.type in [kafka.client] to that of the "
        "message's producer; then run it again: messages that were sent are marked, and are not "
        "sent twice",
    )


def _warn_of_unregistered(settings: Settings, table: str) -> None:
    """A new table is not in the registry until a row of it was sent; nor is a misspelled one."""
    registry = read_to_its_end(settings.kafka, settings.app)
    if registry.current(table) is None:
        hint = did_you_mean_table(table, registry.tables())
        click.echo(f"the schema registry has no table {table} yet{hint}", err=True)


def _warn_of_no_marks(settings: Settings, reader: DeadReader) -> None:
    """A topic of marks that was deleted looks like one that no replay has made yet."""
    if not reader.has_marks_topic():
        click.echo(
            f"there is no topic {names.replayed_topic(settings.app)}: no dead letter counts as "
            "replayed; where one was, somebody deleted the topic, and its message comes twice",
            err=True,
        )


def _read_marks(reader: DeadReader) -> dict[RecordPlace, ReplayMark]:
    """Marks to be shown; a letter without one is perhaps replayed where marks were deleted."""
    marks = reader.marks()
    if reader.deleted_marks:
        click.echo(reader.deleted_marks, err=True)
    return marks


def _count_answers(
    answers: Iterable[ReplayMessage | Why], tally: ReplayTally
) -> Iterator[ReplayMessage]:
    """The messages to send; each answer is counted."""
    for answer in answers:
        tally.add(answer)
        if isinstance(answer, ReplayMessage):
            yield answer
