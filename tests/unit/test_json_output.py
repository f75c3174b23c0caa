"""JSON for programs, on standard outputs of any encoding; what has no letter there is escaped."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

VALUE = {"table": "shop.größen", "said": "→ 10 € \U0001f600", "header": "\udcff"}
PROGRAM = f"""
from relay.program.json_output import print_json, print_lines
print_json({VALUE!r})
print_lines([{VALUE!r}, "as it is"])
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "cp1252"])
def test_json_is_valid_in_every_encoding(encoding: str) -> None:
    told = {**os.environ, "PYTHONIOENCODING": f"{encoding}:backslashreplace"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=told, stdout=subprocess.PIPE, check=True
    )
    first, second, text = ran.stdout.decode("utf-8").splitlines()
    assert json.loads(first) == json.loads(second) == VALUE
    assert text == "as it is"


def test_people_who_read_utf_8_see_the_letters() -> None:
    told = {**os.environ, "PYTHONIOENCODING": "utf-8:backslashreplace"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=told, stdout=subprocess.PIPE, check=True
    )
    assert "größen".encode() in ran.stdout


def test_lines_of_the_log_are_valid_too() -> None:
    program = f"""
import logging
from relay import log
log.setup(json=True)
logging.getLogger("relay").warning("said", extra={VALUE!r})
"""
    told = {**os.environ, "PYTHONIOENCODING": "latin-1:backslashreplace"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=told, stderr=subprocess.PIPE, check=True
    )
    assert json.loads(ran.stderr.decode("utf-8"))["table"] == VALUE["table"]
