"""Notice a source topic that does not hold row batches.

In come dead letters as they are sealed; out come warnings, and at a first start the decision to
stop. Read `watch` first, then `brake` (the pure decision), `first_dead_letters` (which ones are
new) and `past_rows` (whether the app ever had a good message).
"""
