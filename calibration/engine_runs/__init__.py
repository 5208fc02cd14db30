"""Runs of a real serving engine: their log format, a fit of step time and host terms, and what the simulator says."""
