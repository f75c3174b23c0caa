"""`relay topic create`: what it decides, and what the brokers have afterwards."""
