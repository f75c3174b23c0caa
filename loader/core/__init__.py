"""Decide what the loader does with each block; pure.

In comes what the ledger and the servers say; out comes what to do: insert, repeat, wait, skip, set
aside or park. Read `plan` first: it holds every decision about one block, with its proof. Where a
loader starts is decided by `loader.journal.begin_plan`. `set_aside_plan` says when a block is tried
again, `bad_messages` and `left_out` which messages a table refuses, `past_letters` which of them a
restored ledger does not know as dead letters, `table_rules` what a table's engine means for
counting, `token_hashes` which tokens a server remembers, `retry_cause` why an attempt is made
again, `entries` and `positions` what the ledger holds, `waiting` which of its blocks wait and are
next, `claim_sql` which claim of a block holds. `block_size` says how much rows are, where blocks
are shared out.
"""

# pure
