"""Read the sealed blocks of a table as a typed DataFrame: `spark.read.format("relay")`.

In come options; out come Arrow record batches. Read `source`, then `options`, `selection` (which
blocks) and `spark_types`.
"""

from __future__ import annotations

from loader.dataframe.source import RelayDataSource

__all__ = ["RelayDataSource"]
