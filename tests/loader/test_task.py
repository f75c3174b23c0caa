"""What Spark's Python workers say when Spark itself goes away."""

from __future__ import annotations

import contextlib

import pytest
from pyspark import daemon

from loader.task import Traceback


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (EOFError(), ""),
        (BrokenPipeError(), ""),
        (ConnectionResetError(), ""),
        (ValueError("a mistake"), "ValueError: a mistake"),
    ],
)
def test_a_lost_connection_is_no_error(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All else has its traceback."""
    with contextlib.suppress(type(error)):
        try:
            raise error
        finally:  # where sys.exception() is what the daemon has caught
            Traceback.print_exc()
    said = capsys.readouterr().err
    assert says in said
    assert ("Traceback" in said) == bool(says)


def test_the_daemon_prints_with_what_is_replaced() -> None:
    """Another pyspark that does it otherwise is noticed here."""
    assert "print_exc" in daemon.manager.__code__.co_names
    assert "format_exc" in daemon.worker.__code__.co_names
    assert vars(Traceback).keys() >= {"print_exc", "format_exc"}
