"""Plots, terminal tables and exports of a result."""
