"""The runtime verifier: reads what was recorded and says where it cannot be true.

It shares record formats and Kafka clients with the relay and none of its judgement, so that one
mistake is not made twice. `read` asks the servers, `judge` decides and is pure: `judge.chain`
judges the journal record by record. `rounds` repeats an `audit`; `deep` and `landing` look at
chunks and tables, `source_messages` and `relay_letters` judge what was sealed of the source.
`progress` and `webhook` tell others what was found, `anomaly_order` sorts that of several apps.
"""
