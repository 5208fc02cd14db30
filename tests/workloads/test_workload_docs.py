"""The page on workloads: its sections are valid, and it names every format, process and preset."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from workloads import TRACE_FORMATS, WorkloadSpec, preset_names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_shown_is_valid(section: str) -> None:
    WorkloadSpec.parse(yaml.safe_load(section))


def test_nothing_is_left_out() -> None:
    assert len(SECTIONS) >= 5
    processes = ("constant", "poisson", "gamma", "weibull", "stages", "closed_loop")
    assert [name for name in (*TRACE_FORMATS, *processes, *preset_names()) if f"`{name}`" not in PAGE] == []


def test_the_python_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "docs/workloads.md", "exec"), {})
    assert (tmp_path / "sharegpt-100.csv.gz").exists()
