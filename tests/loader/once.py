"""One attempt at some blocks in a process of its own, for tests to kill: no Spark.

Without a block, at those that stand aside.

python -m tests.loader.once SETTINGS.json BLOCK-IN-HEX...
"""

from __future__ import annotations

import sys
from pathlib import Path

from loader.blocks.worker import Worker
from loader.journal.startup import ledger_of
from loader.spark.set_aside import SetAside
from relay.config.settings import Settings
from relay.records_pb2 import Block

if __name__ == "__main__":
    settings = Settings.model_validate_json(Path(sys.argv[1]).read_text())
    blocks = [Block.FromString(bytes.fromhex(text)) for text in sys.argv[2:]]
    for one in Worker(settings, isolates=True).load(blocks):
        print(one.outcome, one.reason)
    if not blocks:
        SetAside(settings, ledger_of(settings), lambda text, **_: print(text)).finish()
