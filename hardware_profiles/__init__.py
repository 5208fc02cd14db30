"""GPU profiles as data, and their loader."""
