"""Run the command `loader` by `python -m loader.cli`, as other programs start it."""

from __future__ import annotations

from loader.cli import main

main()
