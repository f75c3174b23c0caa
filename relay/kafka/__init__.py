"""Talk to Kafka: every client of the brokers, and what their errors mean.

In come settings and requests; out come topics, offsets, records, and outcomes of transactions.

Read `errors` first: it says for each Kafka error whether to retry, wait, abort or stop. `admin`,
`topics`, `block_topics` and `record_limits` look at topics and create them; `partition_reader`
and `partition_ends` read them without a group. `transactional_producer` (with
`transaction_evidence` and `hang_guard`) and `counted_producer` write. `group_offsets`
and `group_queries` deal with consumer groups. `connection_errors` explains a missing connection.
`reconnect` and `librdkafka` work around faults of the client library and of networks.
"""
