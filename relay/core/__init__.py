"""The relay's decisions: `step(state, event) -> (state, effects)`. No clock, no client, no file.

The same `step` runs in production, under an exhaustive search and under Hypothesis.
"""
