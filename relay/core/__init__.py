"""Decide everything that the relay does: `step(state, event) -> (state, effects)`.

In come events (a poll, an assignment, the end of a transaction); out go a new state and effects
for `relay.process.perform`. No clock, no client and no file is in this room, so the same `step`
runs in production, under an exhaustive search and under Hypothesis (tests/model).

Read `state`, `events` and `effects`, then `step`, which holds every transition. `takeover`,
`buffering`, `sealing` (with `block_bound` and `holding`), `transaction_size` and `turns` are the
decisions that `step` is made of; `records` and `offsets` are the values that events and effects
carry.
"""

# pure
