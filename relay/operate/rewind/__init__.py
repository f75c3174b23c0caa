"""`relay rewind` and `relay accept`: a person's word, recorded where the relays' own is.

`seals` reads the journal, `plan` and `accept` decide, `record` writes down, `course` orders the
steps; all pure. `standing`, `group`, `writing` and `targets` talk to servers.
"""
