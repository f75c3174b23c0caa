"""ClickHouse's own server out of chdb's library, from 26.7 on: `python listener.py DIRECTORY`.

Runs in the environment of that version, until its keepalive query is killed. config.xml is read
from the working directory.
"""

from __future__ import annotations

import os
import sys

SQL = (
    "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; "
    "SELECT sum(sleepEachRow(1)) FROM numbers(4000000000) SETTINGS max_block_size = 1, "
    "function_sleep_max_microseconds_per_block = 0, max_execution_time = 0, "
    "log_comment = 'keepalive' FORMAT Null"
)

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    from chdb import _chdb

    _chdb.query(SQL, "TSV", path=f"{sys.argv[1]}/data")
