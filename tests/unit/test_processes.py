"""Where each of several relay processes serves."""

from __future__ import annotations

import pytest

from relay.errors import ConfigError
from relay.processes import run, served


@pytest.mark.parametrize(
    ("listen", "addresses"),
    [
        (None, [[], []]),
        ("127.0.0.1:9464", [["--http", "127.0.0.1:9464"], ["--http", "127.0.0.1:9465"]]),
        ("[::1]:80", [["--http", "[::1]:80"], ["--http", "[::1]:81"]]),
        (":0", [["--http", ":0"], ["--http", ":0"]]),
    ],
)
def test_each_process_has_the_port_behind_the_one_before(
    listen: str | None, addresses: list[list[str]]
) -> None:
    """But for port 0, which is a free one for each."""
    assert [served(listen, index) for index in range(2)] == addresses


def test_a_wrong_address_starts_no_process() -> None:
    """It is told before any is there that had to be ended."""
    with pytest.raises(ConfigError, match="not an address"):
        run(["no-such-file"], "m", 2, "9464")
