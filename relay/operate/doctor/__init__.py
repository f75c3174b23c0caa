"""`relay doctor`: what about the servers would lose, double or hold up rows, before it does."""
