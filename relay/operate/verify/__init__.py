"""The runtime verifier: reads what was recorded and says where it cannot be true.

It shares the record formats with the relay and nothing of its code, so that one mistake is
not made twice. `chain` judges the journal record by record, `committed` the group's offsets
against it; both are pure. `journal` reads, `run` goes round, `relay.cli.verify.command` shows.
"""
