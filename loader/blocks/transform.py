"""loader.transform: a function of the operator's, from Arrow to Arrow, and its version.

Receives `module:function`, gives what it makes of a block's rows, for the INSERT. It is loaded
in the process that inserts, once. That it is deterministic cannot be proven; where two runs over
the first rows differ, it is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from loader.clickhouse.client import TableRefused, one_line
from relay.errors import ConfigError, Refused

TABLE_KEY = b"table"
"""In the metadata of the schema that the function gets: the table, as database.table."""
Function = Callable[[pa.RecordBatch], object]


class CannotTransform(Exception):
    """The function raised, or gave what cannot be inserted; trying again changes nothing."""


@dataclass(frozen=True)
class Transform:
    """A function of the operator's, with its name and version.

    Attributes:
        name: as in the settings.
        version: goes into the ledger with each claim: `name@`, the module's `__version__` if it
            has one, and a hash of the module's source. The hash notices what a person would
            forget to say; `__version__` says what it cannot notice, as a change of something
            that the module imports.
    """

    name: str
    version: str
    function: Function

    def once(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what one run makes of a block's rows.

        Raises:
            CannotTransform: the function raised, or gave no record batch and no table.
        """
        labelled = batch.replace_schema_metadata({TABLE_KEY: table.encode()})
        try:
            made = self.function(labelled)
        except Exception as error:  # whatever it raises is about the block
            reason = f"{self.version}: {type(error).__name__}: {one_line(error)}"
            raise CannotTransform(reason) from error
        if isinstance(made, pa.Table):
            made = _joined(made)
        if not isinstance(made, pa.RecordBatch):
            kind = type(made).__name__
            raise CannotTransform(
                f"transform {self.version} returned {kind}, not a RecordBatch or Table"
            )
        return made


class Transforms:
    """Load the functions of one process, each when it is first wanted.

    Args:
        default: `module:function` for every table; empty: none.
        of_tables: the same for single tables, empty: none.
    """

    def __init__(self, default: str, of_tables: Mapping[str, str]) -> None:
        self._default, self._of_tables = default, of_tables
        self._loaded: dict[str, Transform] = {}
        self._tried: set[str] = set()

    def name(self, table: str) -> str:
        """Return the name of the table's transform, as in the settings; empty: it has none."""
        return self._of_tables.get(table, self._default)

    def of(self, table: str) -> Transform | None:
        """Return the table's.

        Raises:
            Refused: it cannot be imported.
        """
        name = self.name(table)
        return self._load(name) if name else None

    def check(self) -> None:
        """Load them all.

        Raises:
            ConfigError: one cannot be imported.
        """
        for name in sorted(filter(None, {self._default, *self._of_tables.values()})):
            try:
                self._load(name)
            except Refused as error:
                raise ConfigError(error.message, error.next_step) from error

    def made(self, transform: Transform, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what it makes of a block's rows; the table's first rows here go through it twice.

        Raises:
            CannotTransform: as Transform.once.
            TableRefused: the two runs differ.
        """
        made = transform.once(table, batch)
        if table not in self._tried:
            if difference := differ(made, transform.once(table, batch)):
                raise TableRefused(
                    f"transform {transform.version} is not deterministic: two runs over the same "
                    f"rows of {table} differ in {difference}",
                    "Make the transform depend on its input rows only: no clock, random numbers, "
                    "order of sets or other state.",
                )
            self._tried.add(table)
        return made

    def _load(self, name: str) -> Transform:
        if name not in self._loaded:
            self._loaded[name] = load(name)
        return self._loaded[name]


def load(name: str) -> Transform:
    """Return the function `module:function`.

    Raises:
        Refused: there is no such module or function here, or the module has no source.
    """
    module_name, _, attribute = name.partition(":")
    install = "Install the module where Spark's executors run, or add it to their PYTHONPATH."
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # an import may raise anything
        raise Refused(
            f"loader.transform: cannot import {module_name}: {type(error).__name__}: "
            f"{one_line(error)}",
            install,
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise Refused(f"loader.transform: {module_name} has no function {attribute}", install)
    digest = hashlib.sha256(_source(module_name)).hexdigest()[:16]
    version = getattr(module, "__version__", "")
    return Transform(name, f"{name}@{f'{version}+' if version else ''}{digest}", function)


def _source(module: str) -> bytes:
    spec = importlib.util.find_spec(module)
    reader: Any = None if spec is None else spec.loader
    text = reader.get_source(module) if hasattr(reader, "get_source") else None
    if text is None:
        raise Refused(
            f"loader.transform: module {module} has no Python source, from which the loader "
            "derives the transform's version",
            "Provide the module as Python source; it may call compiled code.",
        )
    return str(text).encode()


def _joined(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], table.schema)
    return pa.concat_batches(batches)  # type: ignore[attr-defined,no-any-return]


def differ(one: pa.RecordBatch, other: pa.RecordBatch) -> str:
    """Return what two results differ in, as words; empty: nothing. A NaN is equal to itself."""
    if one.num_rows != other.num_rows:
        return f"the number of rows, {one.num_rows} and {other.num_rows}"
    if not one.schema.equals(other.schema):
        return "their columns"
    for name, mine, theirs in zip(one.schema.names, one.columns, other.columns, strict=True):
        # Arrow's own comparison takes a NaN for different, wherever it is.
        if not mine.equals(theirs) and repr(mine.to_pylist()) != repr(theirs.to_pylist()):
            return f"column {name}"
    return ""
