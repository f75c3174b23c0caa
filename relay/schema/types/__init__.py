"""Describe each ClickHouse type on its way from protobuf through Arrow into a table.

In comes a type's text; out comes a `ColumnType`: protobuf shape, Arrow type, checks, SQL.

Read `kind` (what every type does), then `scalar`, `temporal`, `nested` and `variant` (the types),
`column_type` (how a whole column combines them). `type_text` parses, `proto_shape` describes
protobuf fields, `value_checks` finds values that do not fit, `ticks` counts what
Arrow has as dates and times, `arrow_parts` compares the parts of its structs by name, `exact_cast`
casts where nothing is lost. A new column type begins in `scalar`, `temporal`, `nested` or
`variant`.
"""

# pure
