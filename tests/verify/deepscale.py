"""How fast `relay verify --once --deep` reads again what the loader loaded, beside the loader.

Receives a directory and a number of rows; fills a source topic with the bench's rows, lets the
relay form blocks of them, times `loader run --once` by the bench's rule, then the deep audit as
an operator runs it, process start included. Gives both rates and their ratio.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay.errors import NotExactlyOnce
from tests.bench import loader_bench, servers
from tests.bench import source as sources
from tests.bench.rows import create_tables
from tests.verify.running import timed

APP = "deep"


def measured(
    directory: Path, rows: int, per_message: int, runs: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Rows per second of loader and audit, over the same blocks.

    Raises:
        NotExactlyOnce: the audit found anything, or missed a block.
    """
    with servers.started(directory, progress) as stack:
        progress(f"filling: {rows:,} rows, {per_message} per message")
        create_tables(servers.client(stack), block_column=True)
        source = sources.fill(stack.bootstrap, "source", rows, per_message)
        sums = loader_bench.make_blocks(stack, source, APP, directory)
        progress(f"{sums.blocks} blocks of {sums.rows / sums.blocks:,.0f} rows on average")
        loaded = loader_bench.load_once(stack, source, APP, directory, "0", block_column=True)
        progress(f"loader: {loaded.rows_per_second:,.0f} rows/s")
        config = directory / "load-0" / f"{APP}.toml"
        audits = [_audit(config, sums.blocks) for _ in range(runs)]
    best = min(audit["seconds"] for audit in audits)
    return {
        "rows": source.rows,
        "messages": source.messages,
        "blocks": sums.blocks,
        "loader_rows_per_second": round(loaded.rows_per_second),
        "audits": audits,
        "deep_rows_per_second": round(source.rows / best),
        "ratio": round(source.rows / best / loaded.rows_per_second, 2),
    }


def _audit(config: Path, blocks: int) -> dict[str, Any]:
    """Seconds from the process's start to its end, and the most memory it held."""
    relay = Path(sys.executable).parent / "relay"
    command = [relay, "verify", config, "--once", "--deep", "--json"]
    done, seconds, most = timed(command, stderr=subprocess.DEVNULL)
    totals = json.loads(done.splitlines()[-1])
    if totals["anomalies"] or totals["blocks"] != blocks:
        raise NotExactlyOnce(f"{totals}, {blocks} blocks were formed")
    return {"seconds": round(seconds, 1), "most_memory_mb": most >> 20}
