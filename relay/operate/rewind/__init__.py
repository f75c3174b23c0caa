"""`relay rewind` and `relay accept`: a person's word, recorded where the relays' own is.

`seals` reads the journal, `plan` and `removal` decide, `records` makes the journal records;
`rewind` and `accept` order the steps; all pure. `positions`, `group_fence`, `journal_writer` and
`tables` talk to servers, `servers` is all of them behind `ports`. `superseded_letters` and
`rewinds_reader` tell whoever handles dead letters which of them a rewind has left behind.
"""
