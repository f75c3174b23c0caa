"""Metrics of each program that prometheus-client itself makes, as the documents list them."""

from __future__ import annotations

from relay.program.metric import counter, gauge

PROCESS = (
    counter("process_cpu_seconds_total", "seconds", "How much processor time did the process use?"),
    gauge("process_resident_memory_bytes", "bytes", "How much memory of the process is resident?"),
    gauge(
        "process_virtual_memory_bytes", "bytes", "How much virtual memory did the process reserve?"
    ),
    gauge(
        "process_open_fds",
        "descriptors",
        "How many files and connections does the process have open?",
    ),
    gauge("process_max_fds", "descriptors", "How many files and connections may the process open?"),
    gauge("process_start_time_seconds", "Unix time", "When did the process start?"),
)
