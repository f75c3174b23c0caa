"""Run `relay demo`: real rows through the whole system, killed midway, compared at the end.

Read `run` first, then `data` (the tables), `feed`, `transfer` (`watch`, kill, start again: the
processes are in `programs`), `compare` and `show`.
"""
