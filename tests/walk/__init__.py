"""The reader's walk: which files one row's bytes go through, from the poll to the INSERT."""
