"""A ClickHouse server with users of one's own: `python -m tests.loader.withusers DIR PORT`.

The directory holds users.xml. It is the server out of chdb's library, as
relay.dev.clickhouse_server has it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CONFIG = """<clickhouse><listen_host>127.0.0.1</listen_host><http_port>{port}</http_port>
<logger><log>server.log</log><errorlog>errors.log</errorlog></logger>
<users_config>{users}</users_config></clickhouse>"""
STATEMENTS = """
SYSTEM START LISTEN HTTP;
SELECT sum(sleepEachRow(0.2)) FROM numbers(4000000000) SETTINGS max_block_size = 1,
    function_sleep_max_microseconds_per_block = 0 FORMAT Null
"""


def main(directory: Path, port: int) -> None:
    """Serve until killed."""
    text = CONFIG.format(port=port, users=directory / "users.xml")
    (directory / "config.xml").write_text(text, encoding="utf-8")
    os.chdir(directory)  # where the library looks for it
    from chdb import _chdb  # noqa: PLC0415 - no public name has it

    _chdb.query(STATEMENTS, "TSV", path=str(directory / "data"))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
