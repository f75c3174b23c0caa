"""Format what commands print: lines and tables for people, objects for programs.

In come the values that the rooms of `relay.operate` return; out come lines. Nothing here asks a
server.
"""
