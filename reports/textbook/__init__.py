"""The field's textbook claims, measured by the simulator: `python -m reports.textbook` writes docs/textbook.md.

A claim is a module of this package with a `CLAIM` (see `reports.textbook.claim`). Adding one is adding a file.
"""
