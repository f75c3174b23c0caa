"""A program of a Spark user's: DataFrames of a table's blocks, as JSON lines.

python -m tests.loader.frame OPTIONS-AS-JSON...
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from loader.dataframe.source import RelayDataSource

if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.dataSource.register(RelayDataSource)
    for options in map(json.loads, sys.argv[1:]):
        frame = spark.read.format("relay").options(**options).load()
        rows = sorted(tuple(row) for row in frame.collect())
        found = {
            "columns": frame.schema.simpleString(),
            "rows": rows,
        }
        print(json.dumps(found, default=str))
    spark.stop()
