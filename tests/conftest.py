"""Shared by all tests: the option that names the oracle folder, where the reference code is, and the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
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


@pytest.fixture
def servecast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: exit code, stdout, stderr."""
    import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["servecast", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return (code, *capsys.readouterr())

    return run


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job started in the background ignores interrupts, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
