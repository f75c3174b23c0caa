"""What a relay counts, and what its Kafka clients do: read by Prometheus.

`listed` and `clientlisted` say which metrics there are, `observer` is what the relay's shell
calls, `recorder` counts, `current` and `statistics` answer what stands now, `page` serves it.
"""
