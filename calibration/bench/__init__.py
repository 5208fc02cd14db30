"""Microbenchmarks of one device with plain torch: the points that a hardware profile is fitted to."""
