"""Serve the people who operate a pipeline: look at it, check it, and correct it.

Every room here reads what relays and loaders recorded; only `dead` (replay) and `rewind` write.
`metrics` counts, `dead` shows and replays dead letters, `verify` proves that rows arrived exactly
once, `view` answers `relay status` and `relay blocks`, `doctor` finds settings that would lose or
delay rows, `rewind` reads source messages again, and `page` shows it in a browser.
"""
