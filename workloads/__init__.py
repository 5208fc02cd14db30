"""Requests: arrival processes, length distributions, shared prefixes, traces, presets."""
