"""Judge what the servers said; pure.

In come the values of `relay.operate.doctor.facts`; out come findings, each with its reason and the
command that fixes it. A new finding begins here and in `relay.operate.doctor.findings`.
"""

# pure
