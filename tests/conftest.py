"""Shared by all tests: the option that names the oracle folder, and where the reference code is."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS / "reference"))
sys.path.append(str(TESTS.parent))  # the tree itself, where the package is not installed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oracle-dir",
        default=str(TESTS / "conformance" / "oracle"),
        help="folder with NAME.input.json, NAME.steps.jsonl and NAME.requests.jsonl (default: the copy in the tests)",
    )


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job started in the background ignores interrupts, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
