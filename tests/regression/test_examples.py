"""servecast guards its own examples with the command that it gives to others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cli

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))


def test_no_example_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from refresh import write_summaries

    write_summaries(tmp_path)
    tolerances = str(HERE / "tolerances.yaml")
    words = ["servecast", "compare", str(HERE / "baseline"), str(tmp_path), "--tolerances", tolerances]
    monkeypatch.setattr(sys, "argv", words)
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    assert code == 0, f"{said.out}{said.err}\nif this is meant: python tests/regression/refresh.py"
