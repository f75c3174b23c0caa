"""`relay doctor`: what about the servers would lose, double or hold up rows, before it does.

Read `examine` first: it asks (the room `ask`), judges (the room `judge`) and puts the worst first.
`facts` holds what the servers said, `findings` every kind of finding with its reason, `fixes` the
commands that correct them, `grants` the least rights of each role, `versions` what differs between
ClickHouse's.
"""
