"""Kafka to ClickHouse: inserts every sealed block exactly once, through Spark.

`console` prints lines for people, `spark_child` ends a process that Spark started; all else is in
rooms.
"""
