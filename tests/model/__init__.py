"""The model test of the relay's pure core.

    log.py kafka.py     brokers: logs, transaction coordinator, group   ─┐
    producer.py         librdkafka's side of a transaction               │
    member.py work.py   a relay process: performs relay.core's effects   ├─ world.py quiet.py
    loader.py           a loader process over loader.core.plan, ClickHouse   ─┘        search.py
    judge.py            what is wrong, by the logs and tables alone

`python -m tests.model --steps 1000000` runs a longer campaign.
"""
