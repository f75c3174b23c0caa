#!/bin/sh
# Takes out of a virtual environment what no program here loads, and shows that they still load.
set -eu
python="$1/bin/python"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')

# Servers and clouds of Arrow's: 55 MB. What is not there any more in a later version is no error.
rm -rf "$packages"/pyarrow/libarrow_flight* "$packages"/pyarrow/_flight* \
  "$packages"/pyarrow/libarrow_s3* "$packages"/pyarrow/_s3fs* \
  "$packages"/pyarrow/include "$packages"/pyarrow/src
# Tests of others.
rm -rf "$packages"/pyarrow/tests "$packages"/numba/tests "$packages"/llvmlite/tests
find "$packages"/numpy -type d -name tests -prune -exec rm -rf {} +

"$python" -c 'import pyarrow.compute, pyarrow.csv, pyarrow.json, pyarrow.parquet, relay.cli'
