"""Dead letters: what one holds, which are meant, what a look at one shows, and their replay."""
