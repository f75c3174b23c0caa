"""Describe each ClickHouse type on its way from protobuf through Arrow into a table.

In comes a type's text; out comes a `ColumnType`: protobuf shape, Arrow type, checks, SQL.

Read `kind` (what every type does), then `scalar`, `nested` and `variant` (the types), `column_type`
(how a whole column combines them). `type_text` parses, `proto_shape` describes protobuf fields,
`value_checks` finds values that do not fit, `exact_cast` casts Arrow's arrays where nothing is
lost, `ticks` counts its dates and times. A new column type begins in `scalar`, `nested` or
`variant`.
"""

# pure
