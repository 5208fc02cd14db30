"""Two runs or sweeps held against each other, for people and for CI."""
