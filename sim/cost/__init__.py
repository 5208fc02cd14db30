"""Physics: pure functions from a step's aggregates to seconds."""
