"""Kafka to Kafka: forms per-table blocks from a multi-table topic, in transactions."""
