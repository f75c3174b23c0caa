"""Run `relay demo`: real rows through the whole system, killed midway, compared at the end.

Read `run` first, then `feed`, `transfer` (watch, kill, start again), `compare` and `show`.
"""
