"""Define what a block is on the wire: chunks, journal records, dead letters.

In comes a sealed buffer; out come the Kafka records of its block, its dead letters and the journal
record that makes both visible.

Read `form_block` first (a buffer becomes a block), then `chunks` with `column_layout` (the bytes),
`message_rows` (which row came from which message), `dead_letter`, and `journal` with
`journal_record` (written, and read again). `placement` says where a block's rows lie.
"""
