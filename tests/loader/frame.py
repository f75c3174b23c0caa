"""A program of a Spark user's: the document's example, then DataFrames of a table's blocks.

python -m tests.loader.frame DIRECTORY OPTIONS-AS-JSON...

DIRECTORY has the example's relay.toml. A DataFrame is a line of JSON, with its rows or the error
that reading them ends with; the example prints a table.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.docs import documents

if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    (example,) = documents.fences(documents.text_of("loader/docs/dataframe.md"), "python")
    exec(compile(example, "dataframe.md", "exec"), {"spark": spark})
    for options in map(json.loads, sys.argv[2:]):
        frame = spark.read.format("relay").options(**options).load()
        found = {"columns": frame.schema.simpleString()}
        try:
            found["rows"] = sorted(tuple(row) for row in frame.collect())
        except PySparkException as error:
            found["error"] = str(error)
        print(json.dumps(found, default=str))
    spark.stop()
