"""The loader's guards on each version of ClickHouse's engine that can be had here."""
