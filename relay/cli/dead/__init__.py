"""`relay dead`: `command` lists, shows and replays dead letters; `options` selects them."""
