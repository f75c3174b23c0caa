"""Decode source messages of one table into Arrow columns, and find the bad ones.

In come message values as Arrow arrays; out come a record batch and, for each message that cannot
become rows, its reason. No Python object is made per row.

Read `decode` first. It opens messages with `envelope`, takes the compiled path where it may
(`flat_decoder`, `flat_columns`, `flat_kernel`) and the general one else, and finds bad messages
with `bisect` and `unknown_fields`; `judgement` says which values the table cannot hold, also to
producers. `row_codec` holds a table's compiled row message,
`codecs_of_tables` the codec of every table now. `row_bound` and `list_elements` say how many rows
are decoded at a time. The rest are tools of these: `wire_scan`,
`decoder_guards`, `raw_memory`.
"""
