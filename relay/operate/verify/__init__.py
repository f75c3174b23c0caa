"""The runtime verifier: reads what was recorded and says where it cannot be true.

It shares the record formats with the relay and nothing of its code, so that one mistake is
not made twice. `read` asks the servers, `judge` decides and is pure: `judge.chain` judges the
journal record by record. `rounds` repeats an `audit`; `deep` and `landing` look at chunks
and tables, and `source_messages` judges what was sealed of the source.
"""
