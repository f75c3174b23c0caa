"""Types and values drawn at random: what producers send, and what a SELECT then shows.

Knows ClickHouse and protobuf, and nothing of the code under test: each type here says by
itself which values it has, which values its protobuf field could hold but the column cannot,
and how ClickHouse prints them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

SHOW = (
    "SETTINGS output_format_json_quote_64bit_integers = 1, output_format_json_quote_decimals = 1, "
    "output_format_json_quote_denormals = 1, output_format_json_map_as_array_of_tuples = 1, "
    "output_format_json_named_tuples_as_objects = 0, "
    "date_time_output_format = 'iso'"
)


ZERO_UUID = "00000000-0000-0000-0000-000000000000"


class Drawn(NamedTuple):
    """A type. `default` is what stands for a field left out, as it could have been sent."""

    text: str
    good: st.SearchStrategy[Any]
    bad: st.SearchStrategy[Any] | None
    """Values that the protobuf field holds and the column does not; None: there are none."""
    same: Callable[[Any, Any], bool]
    """Whether what was sent is what the SELECT shows."""
    default: Any
    key: bool = False
    """Whether protobuf and ClickHouse both have it as the key of a map."""
    repeated: bool = False
    nullable: bool = False
    variant: bool = False
    """Whether it can be an alternative of a Variant beside others."""

    def __repr__(self) -> str:
        return self.text


def scalar(text: str, good: Any, bad: Any, same: Any, default: Any, **flags: bool) -> Drawn:
    return Drawn(text, good, bad, same, default, **flags)


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    edges = sorted({low, high, low + 1, high - 1, *(e for e in (0, 1, -1) if low <= e <= high)})
    return st.sampled_from(edges) | st.integers(low, high)


def numbers() -> list[Drawn]:
    found = []
    for bits in (8, 16, 32, 64):
        for name, low in ((f"Int{bits}", -(2 ** (bits - 1))), (f"UInt{bits}", 0)):
            high = low + 2**bits - 1
            bad = None
            if bits < 32:
                least, most = (-(2**31), 2**31 - 1) if low else (0, 2**32 - 1)
                bad = whole(high + 1, most)
                bad = bad | whole(least, low - 1) if low else bad
            found.append(scalar(name, whole(low, high), bad, as_number, 0, key=True))
    for bits in (128, 256):
        for name, low in ((f"Int{bits}", -(2 ** (bits - 1))), (f"UInt{bits}", 0)):
            high = low + 2**bits - 1
            beyond = st.integers(high + 1, high * 20) | st.integers(low * 20 - 9, low - 1)
            junk = st.sampled_from(["", "-", "1.5", "1e5", " 1", "1\n", "0x1", "+1", "٣", "--1"])
            bad = beyond.map(str) | junk
            found.append(scalar(name, whole(low, high).map(str), bad, as_number, "0", key=True))
    return found


def as_number(sent: Any, shown: Any) -> bool:
    return int(sent) == int(shown)


def floats() -> list[Drawn]:
    wide = st.floats(width=64) | st.sampled_from([5e-324, 1.7976931348623157e308, -0.0])
    narrow = st.floats(width=32) | st.sampled_from([2.0**-149, 3.4028234663852886e38, -0.0])
    bits = st.integers(0, 2**16 - 1)
    brain = bits.map(lambda n: float(np.array([n << 16], np.uint32).view(np.float32)[0]))
    return [
        scalar("Float64", wide, None, as_float(np.float64), 0.0),
        scalar("Float32", narrow, None, as_float(np.float32), 0.0),
        scalar("BFloat16", brain, None, as_float(np.float32), 0.0),
    ]


def as_float(kind: Any) -> Callable[[Any, Any], bool]:
    def same(sent: Any, shown: Any) -> bool:
        a, b = kind(sent), kind(float(shown))
        return bool(np.isnan(a) and np.isnan(b)) or a.tobytes() == b.tobytes()

    return same


def decimals() -> list[Drawn]:
    found = []
    for precision, scale in ((9, 2), (18, 18), (38, 0), (38, 10), (76, 38), (1, 0), (76, 76)):
        most = 10**precision - 1
        sent = whole(-most, most).map(lambda n, s=scale: plain(n, s))
        long = st.integers(most + 1, most * 50).map(lambda n, s=scale: plain(n, s))
        finer = st.just("0." + "0" * scale + "1")
        junk = st.sampled_from(["", ".", "-", "1e1", "nan", "1,5", ".5", "5.", "0x1", "1 "])
        kind = scalar(
            f"Decimal({precision}, {scale})",
            sent,
            long | finer | junk,
            lambda sent, shown: Decimal(sent) == Decimal(shown),
            "0",
        )
        found.append(kind)
    return found


def plain(number: int, scale: int) -> str:
    """`number` * 10^-scale in digits."""
    sign, digits = "-" if number < 0 else "", str(abs(number)).rjust(scale + 1, "0")
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def texts() -> list[Drawn]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    odd = st.sampled_from(
        ["", "grüße \u200b 日本 🜁", "nul\0 inside", "tab\t'q' \"d\" \\ `b`", "NULL"]
    )
    equal = lambda sent, shown: sent == shown  # noqa: E731
    hexadecimal = st.uuids().map(str)
    v4 = st.ip_addresses(v=4).map(str)
    v6 = st.ip_addresses(v=6).map(str) | st.sampled_from(
        ["::", "::1", "::ffff:192.0.2.1", "1:2:3:4:5:6:7::", "2001:DB8::A", "64:ff9b::1.2.3.4"]
    )
    bad_uuid = st.sampled_from(
        ["", "x", "0" * 36, "0" * 32, f"{'0' * 8}-0000-0000-0000-{'0' * 13}"]
    )
    bad_v4 = st.sampled_from(["", "1.2.3", "256.0.0.1", "01.2.3.4", "1.2.3.4 ", "::1", "1.2.3.4.5"])
    bad_v6 = st.sampled_from(
        ["", ":", ":::", "1::2::3", "12345::", "1.2.3.4", "::g", "::1%lo", "1:2"]
    )
    enum = r"Enum8('up' = 5, 'it\'s, (ü) \\' = -7, '' = 0)"
    names = ["up", "it's, (ü) \\", ""]
    return [
        scalar("String", text | odd, None, equal, "", key=True, variant=True),
        scalar("LowCardinality(String)", text | odd, None, equal, "", key=True),
        scalar(
            "FixedString(5)",
            st.binary(max_size=5).map(lambda b: bytes(c & 0x7F for c in b)),
            st.binary(min_size=6, max_size=9),
            lambda sent, shown: sent.ljust(5, b"\0").decode() == shown,
            b"",
        ),
        scalar("Bool", st.booleans(), None, equal, default=False, key=True),
        scalar(enum, st.sampled_from(names), st.sampled_from(["x", "up "]), equal, names[1]),
        scalar("UUID", hexadecimal, bad_uuid, as_lower, ZERO_UUID, key=True, variant=True),
        scalar("IPv4", v4, bad_v4, equal, "0.0.0.0", variant=True),
        scalar("IPv6", v6, bad_v6, as_address, "::"),
    ]


def as_lower(sent: str, shown: str) -> bool:
    return sent.lower() == shown


def as_address(sent: str, shown: str) -> bool:
    return ipaddress.IPv6Address(sent) == ipaddress.IPv6Address(shown)


def times() -> list[Drawn]:
    def outside(low: int, high: int, bits: int = 32) -> Any:
        return whole(-(2 ** (bits - 1)), low - 1) | whole(high + 1, 2 ** (bits - 1) - 1)

    found = [
        scalar("Date", whole(0, 65_535), outside(0, 65_535), as_day, 0, variant=True),
        scalar("Date32", whole(-25_567, 120_529), outside(-25_567, 120_529), as_day, -25_567),
        scalar("DateTime('Asia/Kathmandu')", whole(0, 2**32 - 1), None, as_ticks(0), 0),
        scalar("Time", whole(-3_599_999, 3_599_999), outside(-3_599_999, 3_599_999), as_time(0), 0),
    ]
    for scale in (0, 3, 7, 9):
        unit = 10**scale
        low = max(-2_208_988_800 * unit, -(2**63))
        high = min(10_413_792_000 * unit - 1, 2**63 - 1)
        bad = None if high == 2**63 - 1 else outside(low, high, 64)
        name = f"DateTime64({scale}, 'Europe/Berlin')"
        found.append(scalar(name, whole(low, high), bad, as_ticks(scale), 0))
        most = 3_600_000 * unit - 1
        name = f"Time64({scale})"
        found.append(scalar(name, whole(-most, most), outside(-most, most, 64), as_time(scale), 0))
    return found


def as_day(sent: int, shown: str) -> bool:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=sent)).isoformat() == shown


def as_ticks(scale: int) -> Callable[[int, Any], bool]:
    def same(sent: int, shown: str) -> bool:
        seconds, ticks = divmod(sent, 10**scale)
        text = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)).isoformat()
        fraction = f".{ticks:0{scale}}" if scale else ""
        return shown == text.removesuffix("+00:00") + fraction + "Z"

    return same


def as_time(scale: int) -> Callable[[int, str], bool]:
    def same(sent: int, shown: str) -> bool:
        seconds, ticks = divmod(abs(sent), 10**scale)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += f".{ticks:0{scale}}" if scale else ""
        return shown == ("-" if sent < 0 else "") + text

    return same


def objects() -> Drawn:
    letters = st.text("abcxyzü", min_size=1, max_size=4)
    leaf = st.booleans() | st.integers(-(2**63), 2**63 - 1) | letters
    tree = st.recursive(
        st.dictionaries(letters, leaf, min_size=1, max_size=3),
        lambda inner: st.dictionaries(letters, inner | leaf, min_size=1, max_size=3),
        max_leaves=4,
    )
    junk = [
        "", "{", "[1]", "1", '{"a":1}}', '{"a":1},{"b":2}', '{"a":1,"a":2}', '{"a":NaN}', "{'a':1}",
        '{"a":1e999}', r'{"a":"\ud800"}', '{"a.b":1,"a":{"b":2}}', '{"a":"\n"}', "null",
        '{"a":' * 3000 + "1" + "}" * 3000,
    ]  # fmt: skip

    def same(sent: str, shown: Any) -> bool:
        return leaves(json.loads(sent)) == leaves(shown)

    return scalar("JSON", tree.map(json.dumps), st.sampled_from(junk), same, "{}")


def leaves(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: leaves(inner) for key, inner in value.items()}
    return str(value)


SCALARS = [*numbers(), *floats(), *decimals(), *texts(), *times(), objects()]


def in_element(kind: Drawn) -> st.SearchStrategy[Any]:
    """Values as they stand inside an Array, Map or Variant: in a message where they must."""
    wrapped = kind.repeated or kind.nullable
    return kind.good.map(lambda v: {1: v}) if wrapped else kind.good


def bad_in_element(kind: Drawn) -> st.SearchStrategy[Any] | None:
    if kind.bad is None:
        return None
    return kind.bad.map(lambda v: {1: v}) if kind.repeated or kind.nullable else kind.bad


def bare(kind: Drawn, sent: Any) -> Any:
    return sent.get(1) if kind.repeated or kind.nullable else sent


def nullable(inner: Drawn, text: str = "Nullable({})") -> Drawn:
    def same(sent: Any, shown: Any) -> bool:
        return shown is None if sent is None else shown is not None and inner.same(sent, shown)

    good = st.none() | inner.good
    return Drawn(text.format(inner.text), good, inner.bad, same, None, nullable=True)


def array(inner: Drawn) -> Drawn:
    def same(sent: Any, shown: Any) -> bool:
        return len(sent) == len(shown) and all(
            matches(inner, bare(inner, a), b) for a, b in zip(sent, shown, strict=True)
        )

    good = st.lists(in_element(inner), max_size=4)
    wrong = bad_in_element(inner)
    bad = None
    if wrong is not None:
        bad = st.tuples(good, wrong, good).map(lambda parts: [*parts[0], parts[1], *parts[2]])
    return Drawn(f"Array({inner.text})", good, bad, same, [], repeated=True)


def mapping(key: Drawn, value: Drawn) -> Drawn:
    def same(sent: Any, shown: Any) -> bool:
        def found(pair: Any) -> bool:
            held = bare(value, pair[1])
            return any(key.same(pair[0], k) and matches(value, held, v) for k, v in shown)

        return len(sent) == len(shown) and all(found(pair) for pair in sent)

    pairs = st.tuples(key.good, in_element(value))
    good = st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))
    wrong = bad_in_element(value)
    wrong_pairs = [st.tuples(key.good, wrong)] if wrong is not None else []
    if key.bad is not None:
        wrong_pairs.append(st.tuples(key.bad, in_element(value)))
    bad = st.one_of(wrong_pairs).map(lambda pair: [pair]) if wrong_pairs else None
    return Drawn(f"Map({key.text}, {value.text})", good, bad, same, [], repeated=True)


def together(parts: list[Drawn], names: list[str] | None) -> Drawn:
    def same(sent: Any, shown: Any) -> bool:
        return len(shown) == len(parts) and all(
            matches(part, sent.get(at), one)
            for at, (part, one) in enumerate(zip(parts, shown, strict=True), 1)
        )

    maybe = {at: st.none() | part.good for at, part in enumerate(parts, 1)}
    good = st.fixed_dictionaries(maybe)
    wrong = [
        st.fixed_dictionaries({**maybe, at: part.bad})
        for at, part in enumerate(parts, 1)
        if part.bad is not None
    ]
    shown = [
        p.text if names is None else f"`{n}` {p.text}"
        for n, p in zip(names or parts, parts, strict=True)
    ]
    text = f"Tuple({', '.join(map(str, shown))})"
    return Drawn(text, good, st.one_of(wrong) if wrong else None, same, {})


def choice(parts: list[Drawn]) -> Drawn:
    """A Variant; ClickHouse sorts the alternatives by their texts."""
    ordered = sorted(parts, key=lambda part: part.text)

    def same(sent: Any, shown: Any) -> bool:
        if not sent:
            return shown is None
        ((at, value),) = sent.items()
        return shown is not None and matches(ordered[at - 1], bare(ordered[at - 1], value), shown)

    one = [in_element(part).map(lambda v, at=at: {at: v}) for at, part in enumerate(ordered, 1)]
    wrong = [
        strategy.map(lambda v, at=at: {at: v})
        for at, part in enumerate(ordered, 1)
        if (strategy := bad_in_element(part)) is not None
    ]
    text = f"Variant({', '.join(part.text for part in parts)})"
    bad = st.one_of(wrong) if wrong else None
    return Drawn(text, st.just({}) | st.one_of(one), bad, same, {})


def point() -> Drawn:
    part = floats()[0]
    return together([part, part], None)._replace(text="Point")


def geo() -> list[Drawn]:
    ring = array(point())._replace(text="Ring")
    polygon = array(ring)._replace(text="Polygon")
    line = ring._replace(text="LineString")
    lines = array(line)._replace(text="MultiLineString")
    many = array(polygon)._replace(text="MultiPolygon")
    whole_ = choice([line, lines, many, point(), polygon, ring])._replace(text="Geometry")
    return [point(), ring, line, lines, polygon, many, whole_]


def dynamic() -> Drawn:
    by_text = {kind.text: kind for kind in SCALARS}
    names = ["Bool", "Float64", "Int64", "String", "UInt64"]
    return choice([by_text[name] for name in names])._replace(text="Dynamic")


def aggregates() -> list[Drawn]:
    by_text = {kind.text: kind for kind in SCALARS}
    summed = by_text["Decimal(38, 10)"]
    longest = array(by_text["UInt8"])
    return [
        summed._replace(text=f"SimpleAggregateFunction(sum, {summed.text})"),
        longest._replace(text=f"SimpleAggregateFunction(groupArrayArray, {longest.text})"),
    ]


LEAVES = st.sampled_from(SCALARS)
KEYS = st.sampled_from([kind for kind in SCALARS if kind.key])
NULLABLES = LEAVES.filter(lambda kind: not kind.text.startswith("LowCard")).map(nullable) | st.just(
    nullable(
        SCALARS[[kind.text for kind in SCALARS].index("String")], "LowCardinality(Nullable({}))"
    )
)
ALTERNATIVES = st.lists(
    st.sampled_from([kind for kind in SCALARS if kind.variant]),
    min_size=1,
    max_size=4,
    unique_by=id,
)
NAMES = st.lists(
    st.sampled_from(["a", "b", "a b", "größe", "x.y", "it's"]), min_size=3, unique=True
)


def nested(inner: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    several = st.lists(inner, min_size=1, max_size=3)
    variants = st.tuples(ALTERNATIVES, st.booleans(), inner).map(
        lambda drawn: choice([*drawn[0], *([array(drawn[2])] if drawn[1] else [])])
    )
    tuples = st.tuples(several, st.none() | NAMES).map(
        lambda drawn: together(drawn[0], drawn[1] and drawn[1][: len(drawn[0])])
    )
    return (
        inner.map(array)
        | st.tuples(KEYS, inner).map(lambda pair: mapping(*pair))
        | tuples
        | variants
        | tuples.map(nullable)
    )


TYPES = (
    LEAVES
    | NULLABLES
    | st.recursive(LEAVES | NULLABLES, nested, max_leaves=4)
    | st.sampled_from([*geo(), dynamic(), *aggregates()])
)


def matches(kind: Drawn, sent: Any, shown: Any) -> bool:
    """Whether a value that was sent, or left out, is what the SELECT shows."""
    if sent is None and not kind.nullable:
        sent = kind.default
    return kind.same(sent, shown)
