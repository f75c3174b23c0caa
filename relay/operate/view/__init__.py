"""What an operator asks: how the app stands now, and the story of one block.

`facts`, `seen`, `screen`, `story` and `record` are pure: they receive what was read and give
what is shown. `begin`, `group` and `landed` ask the servers, `look` and `tail` put the questions
together. The journal is read, and judged, by `relay.operate.verify`.
"""
