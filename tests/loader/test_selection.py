"""Which blocks a DataFrame has, their groups, and its options; no servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from loader.dataframe.options import PARTITION_BYTES, parse_options
from loader.dataframe.selection import BlockSelection, concerns, groups, live, newest
from relay.errors import ConfigError
from relay.records_pb2 import Accept, Block, Commit, Mark, Rewind

TABLE = "d.t"
CONNECTED = {"app": "shop", "bootstrap": "h:1", "table": TABLE}


def block(first: int, epoch: int = 0, table: str = TABLE, partition: int = 0, **more: int) -> Block:
    name = f"shop:{table}:{partition}:{epoch}:{first}"
    topic = f"shop.blocks.{table}"
    return Block(
        id=name, table=table, topic=topic, partition=partition, first_source_offset=first, **more
    )


def rewind(table: str, offset: int) -> Commit:
    return Commit(rewind=Rewind(starts=[Mark(table=table, offset=offset)]))


def test_what_a_rewind_replaced_is_left_out() -> None:
    """Of its table and partition, from its start on; what comes after it is taken."""
    kept, gone, again = block(0), block(10), block(10, epoch=1)
    other, far = block(10, table="d.u"), block(10, partition=1)
    records = [
        (0, Commit(blocks=[kept, other])),
        (1, Commit(blocks=[far])),
        (0, Commit(blocks=[gone])),
        (0, rewind("d.u", 0)),
        (0, rewind(TABLE, 10)),
        (0, Commit(blocks=[again])),
    ]
    assert live(records, TABLE) == [kept, again, far]
    assert [concerns(commit, TABLE) for _, commit in records] == [1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(("kind", "counts"), [("topic", True), ("offsets", False)])
def test_no_rewind_replaces_blocks_of_a_source_log_that_is_gone(kind: str, counts: bool) -> None:
    """A rewind after `relay accept` of a topic made anew is of the new topic's messages."""
    first, before, kept, gone = block(0), block(500), block(0, epoch=1), block(100, epoch=1)
    accept = Commit(accept=Accept(kinds=[kind]))
    records = [
        (0, Commit(blocks=[first, before])),
        (0, accept),
        (0, Commit(blocks=[kept, gone])),
        (0, rewind(TABLE, 100)),
    ]
    assert live(records, TABLE) == [first, *([before] if counts else []), kept]
    assert concerns(accept, TABLE) == counts


def test_since_until_and_block() -> None:
    """By the time of sealing, from since on and before until."""
    blocks = [block(n, sealed_at_ms=n) for n in (1, 2, 3)]

    def taken(**wanted: int | str) -> list[int]:
        what = BlockSelection(TABLE, **wanted)  # type: ignore[arg-type]
        return [one.first_source_offset for one in blocks if what.takes(one)]

    assert taken() == [1, 2, 3]
    assert taken(since_ms=2) == [2, 3]
    assert taken(until_ms=3) == [1, 2]
    assert taken(block=blocks[1].id) == [2]
    assert taken(block=blocks[1].id, since_ms=3) == []
    assert not BlockSelection("d.u").takes(blocks[0])


def test_groups_are_of_neighbours_and_about_as_large_as_asked() -> None:
    """No block is split or left out; one that is larger is alone."""
    sizes = [40, 40, 40, 500, 10]
    blocks = [block(n, first_offset=n, row_bytes=size) for n, size in enumerate(sizes)]
    blocks += [block(n, partition=1, first_offset=n, row_bytes=10) for n in range(2)]
    made = groups(reversed(blocks), 100)
    assert [[one.row_bytes for one in group] for group in made] == [
        [40, 40],
        [40],
        [500],
        [10],
        [10, 10],
    ]
    assert [one for group in made for one in group] == blocks
    assert groups([], 100) == []


def test_the_newest_columns() -> None:
    """Of the highest schema version, the block sealed last."""
    blocks = [block(n, schema_version=v, sealed_at_ms=n) for n, v in ((1, 2), (2, 2), (3, 1))]
    assert newest(blocks) == blocks[1]
    assert newest([block(1), block(2)]) == block(2)
    assert newest([]) is None


def test_options() -> None:
    """Times are UTC unless they say otherwise."""
    found = parse_options(
        CONNECTED | {"since": "1970-01-01T00:00:01", "until": "1970-01-01T01:00+01:00"}
    )
    assert found.wanted == BlockSelection(TABLE, 1000, 0, "")
    assert (found.metadata, found.partition_bytes) == (False, PARTITION_BYTES)
    assert found.settings.kafka.bootstrap == "h:1"
    assert parse_options(CONNECTED | {"metadata": "True"}).metadata


def test_options_by_a_configuration_file(tmp_path: Path) -> None:
    """The app's whole settings, with its way to the brokers."""
    path = tmp_path / "relay.toml"
    path.write_text(
        'app = "shop"\n[kafka]\nbootstrap = "h:1"\nclient = { "client.id" = "x" }\n[source]\n'
        'topic = "s"\n[clickhouse]\nurl = "http://h:1"\n[loader]\ncheckpoint = "c"\n'
    )
    found = parse_options({"config": str(path), "table": TABLE})
    assert found.settings.kafka.client == {"client.id": "x"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tabel": TABLE}, "unknown option tabel"),
        (CONNECTED | {"table": "t"}, "'t' is not database.table"),
        ({"table": TABLE, "app": "shop"}, "where the journal is"),
        (CONNECTED | {"since": "yesterday"}, "option since"),
        (CONNECTED | {"partition_bytes": "0"}, "option partition_bytes"),
        (CONNECTED | {"metadata": "yes"}, "option metadata is 'yes'"),
    ],
)
def test_options_of_no_use_are_named(options: dict[str, str], why: str) -> None:
    """Before any server is asked."""
    with pytest.raises(ConfigError, match=why):
        parse_options(options)
