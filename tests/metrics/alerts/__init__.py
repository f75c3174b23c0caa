"""Cases in which each alert fires, waits and is silent; `case` says how they are written."""
