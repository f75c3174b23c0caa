"""How a process that Spark started ends once Spark has closed its connection.

Spark's own worker daemon imports this before it forks, so it must stay light.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

CLOSED = (ConnectionError, EOFError)
"""How such a process finds that the connection is closed."""


def end_with_spark(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """End with Spark; sys.excepthook of the process that reads the journal for Spark.

    A query that ends may interrupt Spark in the midst of a question, which closes the connection.
    The answer then fails, and Spark ends the process, perhaps in the midst of the traceback.
    Errors of the journal itself go to Spark over the connection, and not here.
    """
    if issubclass(kind, CLOSED):
        os._exit(1)  # nothing is left to flush but what nobody hears
    sys.__excepthook__(kind, error, trace)


class Traceback:
    """In the place of `traceback` in pyspark.daemon: says nothing of a lost connection to Spark.

    A worker may be at work, or just forked, when Spark ends and closes it. A task's own errors go
    to Spark over the connection, and not here.
    """

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print as traceback.print_exc does."""
        if not isinstance(sys.exception(), CLOSED):
            traceback.print_exc()
