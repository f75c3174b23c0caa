"""Kafka to ClickHouse: inserts every sealed block exactly once, through Spark."""
