"""Kafka and ClickHouse's engine on this machine, for development and tests only."""
