"""Run the relay: ask the core what to do, do it, and tell the core what happened.

In comes one pipeline's settings; out go transactions.

Read `loop` first (poll, step, perform), then `perform` (one method for each effect), `producers`
and `seal_results` (the transaction), `takeover`, `truth` and `journal_heads` (what was committed
before us), `suitability` (does the source hold row batches at all?). `several` runs many relays
under one command; `retire` ends what lost members left open. `chunk_queue`, `memory`, `log_lines`
and `coverage` are details of these.
"""
