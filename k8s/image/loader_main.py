"""Where spark-submit begins: a file of its own, so that the package is imported as one."""  # noqa: INP001

from __future__ import annotations

from loader.cli import main

main()
