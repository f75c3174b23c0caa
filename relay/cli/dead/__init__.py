"""`relay dead`: lists, shows and replays dead letters."""
