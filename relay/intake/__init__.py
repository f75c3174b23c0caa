"""Poll the source topic and hold its messages, by table and partition, until they are sealed.

In come librdkafka's messages; out come sorted polls (events of the core) and held buffers.

Read `source` first (the member of the consumer group), then `fetch_assignment`, `bulk` with
`message_kernel` (messages without a Python object each), `message_batch` (which table a message
belongs to), `sort_poll` and `buffers` (what is held). `membership` and `read_errors`
explain a source that stands still; `sample` and `foreign_formats` look at messages that are not
row batches.
"""
