"""`relay topic create`: makes the source topic, which relays read and never make.

Receives the app's settings and what a person asked for; gives the topic as it is afterwards, or
the reason why it was not made. `plan` decides, pure; `create` asks the brokers and does it.
"""
