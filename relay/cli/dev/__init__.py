"""Define `relay dev` and `relay demo`: Kafka and ClickHouse on this machine."""
