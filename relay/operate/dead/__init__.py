"""Dead letters: what one holds, which are meant, and their replay.

`reader` reads the letters of an app and the marks of replays. `selection` says which are meant,
`inspect` with `wire` what is in one; `replay_plan` decides what `replay` does with each.
"""
