"""What an operator asks: how the app stands now, and the story of one block.

`facts`, `journal_state`, `status`, `missing_programs`, `block_story` and `journal_lines` are pure:
they receive what was read and give what is shown. `start`, `group` and `clickhouse_state` ask the
servers; `ask` and `journal_tail` put the questions together. `lost_ledger`, `ledger_looks` and
`oldest_unread` are questions of these. The journal is read, and judged, by `relay.operate.verify`.
"""
