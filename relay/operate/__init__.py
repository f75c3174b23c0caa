"""Serve the people who operate a pipeline: look at it, check it, and correct it.

Every room here reads what relays and loaders recorded. `dead` (replay), `rewind` and `source_topic`
write, and `doctor` does where it is asked to try something. `metrics` counts, `dead` shows and
replays dead letters, `verify` proves that rows arrived exactly once, `view` answers `relay status`
and `relay blocks`, `doctor` finds settings that would lose or delay rows, `rewind` reads source
messages again, `source_topic` makes the topic, and `page` shows it all in a browser.
"""
