"""Write rows of files and programs into the source topic.

In come rows; out go row batches, each message counted until the brokers acknowledge it.

Programs import what is listed below (`relay docs api`), as `row_producer`; `relay produce` uses
`send_files`. `file_rows` reads Parquet, CSV and JSON as `file_options` say (`csv_lines` and
`json_lines` know lines, `parquet_times` the times of old Parquet files), `arrow_columns` with
`nested_conversion` and `leaf_conversion`, and `row_encoder` turn values into protobuf rows,
`gathering` cuts them into messages, and `codecs` knows the tables.
"""

from __future__ import annotations

from relay.produce.arrow_columns import BadValue
from relay.produce.gathering import Batching
from relay.produce.row_producer import RowProducer

__all__ = ["BadValue", "Batching", "RowProducer"]
