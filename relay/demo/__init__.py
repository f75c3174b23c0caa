"""`relay demo`: real rows through the whole system, with a relay and the loader killed midway."""
