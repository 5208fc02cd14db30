"""Microbenchmarks, importers of kernel tables, and the fit of a hardware profile."""
