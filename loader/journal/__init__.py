"""Read the journal and decide where to begin in it.

In come settings and the ledger's position; out comes one Spark row for each sealed block.

Read `startup` and `begin_plan` first (where to begin, and why), then `source` and `reader` (Spark's
streaming source). `checkpoint` deals with Spark's checkpoint directory, `sealed_blocks` lists
blocks that are not settled, `rewinds` finds rewinds in the journal, `rewind_check` asks whether one
still stands, `past_letters` finds dead letters that a restored ledger does not know.
"""
