"""The package as users get it: built, installed, and used away from the repository."""
