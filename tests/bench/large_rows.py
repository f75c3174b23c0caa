"""The large row: 40 columns, 1.5 kB as protobuf, with a map and an array.

Receives row numbers, gives their columns, and SQL that makes the same values of a row's `event`.
Texts have 5 to 200 characters: some are one of a few, most are made of such parts with numbers
between them, two are random. Never talks to a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from relay.schema.evolution import ColumnDef
from relay.schema.types.column_type import parse_type
from tests.bench.spread_values import (
    Counted,
    Digits,
    Hex,
    Number,
    Pick,
    Several,
    Sometimes,
    Text,
    Value,
)

if TYPE_CHECKING:
    from tests.bench.spread_values import Numbers, Part

_FIRST_TICK = 1_700_000_000_000  # milliseconds since 1970
_FIRST_DAY = _FIRST_TICK // 86_400_000
_FEW = "LowCardinality(String)"
_ANY = 1 << 31

_WORD = Pick(
    *("autumn", "blue", "cotton", "double", "garden", "light"),
    *("outdoor", "oak", "silver", "small", "summer", "winter"),
)
_THING = Pick(
    *("armchair", "bookcase", "desk", "kettle", "lamp"),
    *("mirror", "rug", "sofa", "table", "wardrobe"),
)
_COUNTRY = Pick(
    *("Austria", "Belgium", "Denmark", "Finland", "France", "Germany", "Italy"),
    *("Netherlands", "Norway", "Poland", "Portugal", "Spain", "Sweden", "Switzerland"),
)
_CITY = Pick(
    *("Amsterdam", "Barcelona", "Bergen", "Bologna", "Copenhagen", "Dresden", "Edinburgh"),
    *("Gdansk", "Ghent", "Helsinki", "Leipzig", "Lisbon", "Ljubljana", "Lyon-Villeurbanne"),
    *("Manchester", "Marseille", "Munich", "Oporto", "Rotterdam", "Salzburg", "Seville"),
    *("Stockholm", "Tallinn", "Turin", "Utrecht", "Valencia", "Vilnius", "Warsaw", "Zurich"),
)
_FIRST_NAME = Pick(
    *("Agnes", "Bruno", "Carla", "David", "Elena", "Felix", "Greta", "Hugo"),
    *("Irene", "Jonas", "Karin", "Lukas", "Marta", "Nils", "Olga", "Pavel"),
)
_LAST_NAME = Pick(
    *("Andersen", "Bianchi", "Costa", "Dubois", "Eriksson", "Fischer"),
    *("Garcia", "Horvat", "Ivanov", "Jansen", "Kowalski", "Larsen"),
)
_SYSTEM = Pick(
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 10_15_7",
    "X11; Linux x86_64",
    "Linux; Android 14; Pixel 8",
    "iPhone; CPU iPhone OS 17_5 like Mac OS X",
)
_PHRASE = Pick(
    "",
    "fits through a door of 80 cm, ",
    "in three parts of 20 kg, ",
    "of solid wood from certified forests, ",
    "with a warranty of five years, ",
    "washable at 30 degrees, ",
    "with all screws and a short manual, ",
    "for rooms with a sloping ceiling, ",
    "delivered flat on a pallet, ",
)
_REMARK = Pick(
    "",
    "arrived a day early and in one piece; ",
    "the colour is darker than shown; ",
    "one of the screws was missing; ",
    "would buy it again any time; ",
    "easy to put together; ",
    "the parcel was wet on one side; ",
    "larger than I thought it was; ",
)
_OUTCOME = Pick(
    "accepted by the warehouse within the hour",
    "card declined by the bank, asked for another one",
    "passed on to the carrier on the same evening",
    "waiting for the customer to choose a day",
)
_KEYS = (
    *("colour", "material", "warehouse", "supplier", "price_group"),
    *("packaging", "experiment", "recommended_by", "returned_to", "next_step"),
)


def _hex(characters: int) -> list[Part]:
    return [Hex()] * (characters // 4)


_AGENT = Text(
    *("Mozilla/5.0 (", _SYSTEM, ") AppleWebKit/537.36 (KHTML, like Gecko) "),
    *("Chrome/", Digits(40), ".0.", Digits(9000), " Safari/537.36"),
)
_URL = Text(
    *("https://shop.example.com/", _WORD, "-", _THING, "/", _WORD, "/", Digits(100_000)),
    *("?variant=", Digits(12), "&utm_source=newsletter&utm_medium=email&utm_campaign="),
    *(_WORD, "-sale&ref=", Digits(_ANY)),
)
_REFERRER = Text(
    *("https://search.example.org/find?q=", _WORD, "+", _THING, "&page=", Digits(9)),
    *("&lang=en&session=", Digits(_ANY)),
)
_TITLE = Text(
    "Buy a ", _WORD, " ", _WORD, " ", _THING, " for your ", _THING, " online | example shop"
)
_QUERY = Text(
    *("category=", _THING, "&colour=", _WORD, "&sort=price&per_page=", Digits(100)),
    *("&cursor=", *_hex(12), "&seen=", _WORD, ",", _THING, ",", _WORD),
)
_ADDRESS = Text("10.", Digits(250), ".", Digits(250), ".", Digits(250))
_REQUEST = Text(*_hex(8), "-", *_hex(4), "-", *_hex(4), "-", *_hex(4), "-", *_hex(12))
_EMAIL = Text(_FIRST_NAME, ".", _LAST_NAME, Digits(1000), "@mail.example.org")
_STREET = Text(_LAST_NAME, " street ", Digits(200), ", ", Digits(90_000), " ", _CITY)
_CAMPAIGN = Text(_WORD, "-sale-2023-", Digits(30), "-", _THING)
_DESCRIPTION = Text("A ", _WORD, " ", _THING, ": ", *[_PHRASE] * 4, "no. ", Digits(1_000_000))
_COMMENT = Text("customer: ", *[_REMARK] * 4, "order ", Digits(10_000_000))
_ATTRIBUTE = Text(_WORD, "-", Digits(5000), "-", _THING)

_VALUES: dict[str, tuple[str, Value]] = {
    "event": ("UInt64", Counted(0, 1, "{}")),
    "account": ("Int64", Number(_ANY)),
    "at": ("DateTime64(3)", Counted(_FIRST_TICK, 1, "fromUnixTimestamp64Milli({})")),
    "received": ("DateTime", Counted(_FIRST_TICK // 1000, 1000, "toDateTime({})")),
    "day": ("Date", Counted(_FIRST_DAY, 1_000_000, "toDate(toUInt16({}))")),
    "session": ("UInt64", Number(_ANY, least=1 << 40)),
    "kind": (_FEW, Text(Pick("created", "changed", "shipped", "returned", "closed"))),
    "platform": (_FEW, Text(Pick("android", "desktop", "iphone", "tablet"))),
    "browser": (_FEW, Text(Pick("Chrome", "Firefox", "Opera", "Safari"))),
    "country": (_FEW, Text(_COUNTRY)),
    "language": (_FEW, Text(Pick("de-DE", "en-GB", "es-ES", "fr-FR", "it-IT", "nl-NL"))),
    "host": (_FEW, Text("shop-", Digits(24), ".eu-west-1.example.com")),
    "city": ("String", Text(_CITY)),
    "agent": ("String", _AGENT),
    "url": ("String", _URL),
    "referrer": ("Nullable(String)", Sometimes(_REFERRER, 3)),
    "title": ("String", _TITLE),
    "query": ("String", _QUERY),
    "address": ("String", _ADDRESS),
    "request": ("String", _REQUEST),
    "trace": ("String", Text(*_hex(32))),
    "name": ("String", Text(_FIRST_NAME, " ", _LAST_NAME)),
    "email": ("String", _EMAIL),
    "street": ("String", _STREET),
    "campaign": ("Nullable(String)", Sometimes(_CAMPAIGN, 2)),
    "description": ("String", _DESCRIPTION),
    "comment": ("Nullable(String)", Sometimes(_COMMENT, 6)),
    "outcome": ("String", Text(_OUTCOME)),
    "amount": ("Float64", Number(_ANY, per=100)),
    "price": ("Float64", Number(100_000, least=99, per=100)),
    "discount": ("Nullable(Float32)", Sometimes(Number(90, least=1, per=2), 2)),
    "quantity": ("Int32", Number(90, least=-9)),
    "width": ("UInt16", Number(4000)),
    "height": ("UInt16", Number(3000)),
    "took": ("UInt32", Number(5_000_000)),
    "sent": ("UInt64", Number(1 << 24)),
    "status": ("UInt16", Number(400, least=200)),
    "ok": ("Bool", Number(2)),
    "attributes": ("Map(String, String)", Several([_ATTRIBUTE] * 10, least=6, keys=_KEYS)),
    "tags": ("Array(String)", Several([Text(_WORD, " ", _THING)] * 9)),
}

COLUMNS = tuple(ColumnDef(name, type_) for name, (type_, _) in _VALUES.items())


def columns(rows: Numbers, at: int | None) -> pa.RecordBatch:
    """Rows of these numbers, as tests.bench.rows.numbered_columns makes others."""
    made = {
        name: value.column(rows, name, parse_type(type_).wire)
        for name, (type_, value) in _VALUES.items()
    }
    if at is not None:
        made["at"] = pa.array(np.full(len(rows), at, np.int64))
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def values() -> dict[str, str]:
    """SQL of each column but `at`."""
    return {name: value.sql(name) for name, (_, value) in _VALUES.items() if name != "at"}
