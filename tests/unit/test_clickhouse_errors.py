"""The table of ClickHouse's error codes: true to the server, with a reason for each."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.clickhouse.client import failure, is_permanent, table_failure
from relay.clickhouse import errors
from relay.clickhouse.errors import (
    CODES,
    About,
    about,
    is_surely_a_value,
    may_be_a_value,
    number,
)
from relay.config.settings import ClickHouse
from relay.errors import ClickHouseAway, Refused, Unavailable
from relay.schema.catalogue import translated

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

PARTITIONS = (
    "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100). The "
    "limit is controlled by 'max_partitions_per_insert_block' setting. (TOO_MANY_PARTS)"
)
PARTS = (
    "Code: 252. DB::Exception: Too many parts (300 with average size of 481.00 B) in table "
    "'shop.orders'. Merges are processing significantly slower than inserts. (TOO_MANY_PARTS)"
)
ONE_QUERY = (
    "Code: 241. DB::Exception: Query memory limit exceeded: would use 21.38 MiB, maximum: 19.07 "
    "MiB: while executing 'FUNCTION _CAST'. (MEMORY_LIMIT_EXCEEDED)"
)
ONE_QUERY_BEFORE = "Code: 241. DB::Exception: Memory limit (for query) exceeded: would use 9 GiB."
LONG_VALUE = (
    "Poco::Exception. Code: 1000, e.code() = 0, HTML Form Exception: Field value too long (version "
    "26.9.2.1)"
)
SHORT_TIME = (
    "Code: 243. DB::Exception: Unable to parse fragment '2024' from '' because requires at least 1 "
    "characters left. (NOT_ENOUGH_SPACE)"
)
WHOLE_SERVER = "Code: 241. DB::Exception: (total) memory limit exceeded: would use 21.38 GiB."
ONE_USER = "Code: 241. DB::Exception: User memory limit exceeded: would use 21.38 MiB."


def test_every_code_stands_once_with_its_reason() -> None:
    """A number has one meaning here, and says why in its own words or by another's."""
    groups = [group for name, group in vars(errors).items() if _is_group(name, group)]
    listed = [code for group in groups for code in group]
    assert len(listed) > 100
    assert [n for n, times in Counter(code.number for code in listed).items() if times > 1] == []
    assert {code.number: code for code in listed} == CODES
    for code in listed:
        assert len(code.why) > 3, code
        for other in re.findall(r"\bas (\d+)", code.why):
            assert int(other) in CODES, f"{code} names a code that is not listed"
            assert CODES[int(other)].about is code.about, f"{code} is not about the same"


def _is_group(name: str, value: object) -> bool:
    """Whether this is a part of the table, whatever it is called."""
    return (
        name.isupper()
        and isinstance(value, list)
        and all(isinstance(code, errors.Code) for code in value)
    )


def test_the_server_calls_them_by_these_names(client: Client) -> None:
    """As the server that runs here has them, each of them."""
    asked = "SELECT number, errorCodeToName(toInt32(number)) FROM numbers(2000)"
    names = dict(client.query(asked).result_rows)
    assert {code.number: code.name for code in CODES.values()} == {n: names[n] for n in CODES}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PARTITIONS, About.BLOCK),
        (PARTS, About.TABLE_NOW),
        (ONE_QUERY, About.SIZE),
        (ONE_QUERY_BEFORE, About.SIZE),
        (LONG_VALUE, About.SIZE),
        (SHORT_TIME, About.BLOCK),
        ("Code: 243. DB::Exception: Not enough space for merging parts", About.SERVER),
        ("Poco::Exception. Code: 1000, e.code() = 104, Connection reset by peer", About.SERVER),
        (WHOLE_SERVER, About.SERVER),
        (ONE_USER, About.SERVER),
        ("Code: 115. DB::Exception: Unknown setting 'x'. (UNKNOWN_SETTING)", About.CONNECTION),
        ("Code: 9999. DB::Exception: of a release to come", About.UNKNOWN),
        ("Code: 36. DB::Exception: Invalid expression for function parseTimeDelta", About.BLOCK),
        ("Code: 36. DB::Exception: Dictionary (`d.rates`) not found. (BAD_ARG", About.TABLE),
        ("Connection refused", About.SERVER),
        ("Setting async_insert is readonly", About.USER),
        ("error code 60", About.TABLE),
    ],
)
def test_what_an_error_is_about(text: str, what: About) -> None:
    """Some codes have two meanings, told by the text; what is not listed is said to be unknown."""
    assert about(text) is what


def test_two_meanings_are_told_by_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without it a block over too many partitions would wait for ever."""
    monkeypatch.setattr(errors, "_PARTITIONS", re.compile(r"(?!)"))
    monkeypatch.setattr(errors, "_OF_ONE_QUERY", re.compile(r"(?!)"))
    monkeypatch.setattr(errors, "_DICTIONARY", re.compile(r"(?!)"))
    monkeypatch.setattr(errors, "_FORM", re.compile(r"(?!)"))
    monkeypatch.setattr(errors, "_SHORT_TIME", re.compile(r"(?!)"))
    found = [about(text) for text in (PARTITIONS, ONE_QUERY, LONG_VALUE, SHORT_TIME)]
    assert found == [About.TABLE_NOW, About.SERVER, About.SERVER, About.SERVER]


@pytest.mark.parametrize(
    ("text", "may_be", "surely"),
    [
        ("Code: 6. DB::Exception: Cannot parse", True, True),
        ("Code: 36. DB::Exception: Invalid expression", True, False),
        ("Code: 36. DB::Exception: Dictionary (`d.rates`) not found", False, False),
        ("Code: 43. DB::Exception: Illegal type", True, False),
        ("Code: 32. DB::Exception: Attempt to read after eof", True, False),
        ("Code: 510. DB::Exception: Update failed for dictionary 'd.rates'", False, False),
        ("Code: 9999. DB::Exception: Dictionary d.rates has no source", False, False),
        ("Code: 754. DB::Exception: A program failed", False, False),
        ("Code: 9999. DB::Exception: of a release to come", True, False),
        ("Code: 60. DB::Exception: Table does not exist", False, False),
        ("Code: 241. DB::Exception: (total) memory limit exceeded", False, False),
        ("a transform's own words", False, True),
    ],
)
def test_which_errors_are_tried_message_by_message(text: str, may_be: bool, surely: bool) -> None:
    assert (may_be_a_value(text), is_surely_a_value(text)) == (may_be, surely)


def test_only_the_first_code_counts() -> None:
    """One that another server's error carries in its text is not this one's."""
    text = "Code: 279. DB::Exception: All tries failed: Code: 497. DB::Exception: no"
    assert (number(text), about(text)) == (279, About.SERVER)
    assert number("no code here") is None


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_relay_and_loader_go_by_the_same_table(code: errors.Code) -> None:
    """What passes is waited for by both; what a person has to mend is refused by the loader."""
    text = f"Code: {code.number}. DB::Exception: no. ({code.name})"
    error = DatabaseError(text, code=code.number, name=code.name)
    passes = code.about in errors.PASSING
    assert is_permanent(error) is not passes
    kind = Unavailable if passes else Refused
    assert type(failure(error, "the ledger")) is kind
    of_relay = translated(error, ClickHouse(url="http://ch:8123"), "read")
    of_one_table = code.about is About.TABLE and code.number not in errors.RIGHTS
    assert type(of_relay) is (ClickHouseAway if passes or of_one_table else Refused)


def test_a_right_on_a_system_table_is_no_single_tables() -> None:
    """It is missing for all of them; one on a table of the user's is that table's."""
    start = "Code: 497. DB::Exception: eve: Not enough privileges. It's necessary to have the grant"
    system = DatabaseError(f"{start} SELECT(query) ON system.processes. (ACCESS_DENIED)")
    own = DatabaseError(f"{start} SELECT(_block) ON shop.orders. (ACCESS_DENIED)")
    assert type(table_failure(system, "asking")) is Refused
    assert isinstance(table_failure(own, "asking"), Refused)
    assert type(table_failure(own, "asking")) is not Refused
