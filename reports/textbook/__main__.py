"""``python -m reports.textbook``: measure the textbook claims and write docs/textbook.md with its plots."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports.textbook.claim import claims
from reports.textbook.page import write_page


def main() -> int:
    """Write the page; 1 if a number lies outside its bounds."""
    parser = argparse.ArgumentParser(prog="python -m reports.textbook", description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("docs/textbook.md"), help="the page to write")
    parser.add_argument("--traces", type=Path, help="folder of published traces, for the claims that replay one")
    parser.add_argument("--only", choices=[claim.name for claim in claims()], help="measure one claim, keep the rest")
    options = parser.parse_args()
    broken = write_page(options.page, options.traces, options.only)
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
