"""Know what the rows of a table look like, now and over time.

In come the table's columns in ClickHouse; out come row messages (protobuf) with field numbers that
never change their meaning.

Read `evolution` first (which column has which field number), then `row_descriptor` (the protobuf
descriptor), `registry` (the schema registry topic) and `catalogue` (the columns in ClickHouse).
`dead_reason` lists why a message cannot become rows. `compatibility`, `protoc`, `proto_directory`
and `seeding` (with `seed_matching`) serve `relay schema`. `block_column` judges the column of block
ids; `asked_apart` and `beside` keep one slow or failing database from holding up others. How one
type travels is in `types`.
"""
