"""doctor, show workloads FILE, completion, and what a notebook shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from toy_run import toy_run

from reports import doctor
from sim import compiled

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str, str]]


def test_doctor_finds_this_installation_well(servecast: Run) -> None:
    code, out, err = servecast("doctor", "--json")
    assert (code, err) == (0, "")
    found = {finding["what"]: finding for finding in json.loads(out)}
    assert found["numpy"]["state"] == "ok"
    assert found["working folder"]["state"] == "ok"
    assert {"extra calibrate", "extra cluster", "extra docs", "extra test"} <= set(found)


def test_doctor_names_what_is_missing(servecast: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", ("numpy", "a-package-nobody-has"))
    code, out, _ = servecast("doctor")
    assert code == 1
    assert "MISSING  a-package-nobody-has" in out


def test_doctor_finds_a_compiled_module_that_is_older_than_its_source(
    servecast: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = servecast("doctor", "--json")
    loop = next(finding for finding in json.loads(out) if finding["what"] == "event loop")
    assert (code, loop["detail"]) == (0, "compiled" if compiled.compiled() else f"not compiled: {compiled.HOW}")
    for name in ("compiled.py", "engine.py", f"engine{EXTENSION_SUFFIXES[0]}"):
        (tmp_path / name).touch()
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    installed = (tmp_path / "engine.py").stat().st_mtime
    os.utime(tmp_path / f"engine{EXTENSION_SUFFIXES[0]}", (installed - 1, installed - 1))
    assert servecast("doctor")[0] == 0, "an installer writes modules before their sources"
    os.utime(tmp_path / f"engine{EXTENSION_SUFFIXES[0]}", (1, 1))
    code, out, _ = servecast("doctor")
    assert code == 1
    assert "MISSING  event loop" in out
    assert "engine.py" in out


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("echo 'NVIDIA H200, 143771 MiB'", "ok", "NVIDIA H200, 143771 MiB"),
        ("exit 9", "note", "gives no answer"),
        ("true", "note", "none seen"),
    ],
)
def test_doctor_names_the_gpus_and_needs_none(
    servecast: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, words: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, _ = servecast("doctor", "--json")
    gpus = next(finding for finding in json.loads(out) if finding["what"] == "gpus")
    assert (code, gpus["state"]) == (0, state)
    assert words in gpus["detail"]


def test_a_trace_is_described_and_drawn(servecast: Run, tmp_path: Path) -> None:
    trace, plot = tmp_path / "requests.csv", tmp_path / "requests.png"
    rows = [f"{n / 4},{100 + n},{10 + n % 3}" for n in range(40)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    code, out, err = servecast("show", "workloads", trace, "--plot", plot)
    assert (code, err) == (0, "")
    assert "4 a second" in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    figures = json.loads(servecast("show", "workloads", trace, "--json")[1])
    assert figures["requests"] == 40


def test_the_workload_of_a_scenario_and_a_preset_is_drawn(servecast: Run, tmp_path: Path) -> None:
    for name in (ROOT / "examples" / "mixtral-prefix.yaml", "mooncake-conversation"):
        code, out, _ = servecast("show", "workloads", name, "--plot", tmp_path / "w.svg")
        assert code == 0
        assert "prefix share" in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["show", "workloads", "no/such.csv"], "no/such.csv"),
        (["show", "workloads", "sharegbt"], "did you mean 'sharegpt'"),
        (["show", "workloads", "sharegpt", "--plot", "x.gif"], "x.gif"),
        (["show", "models", "--plot", "x.png"], "nothing to draw"),
    ],
)
def test_what_cannot_be_shown_is_refused(servecast: Run, arguments: list[str], word: str) -> None:
    code, out, err = servecast(*arguments)
    assert (code, out) == (2, "")
    assert word in err


def test_a_shell_completes_commands() -> None:
    environment = os.environ | {
        "_CLI.PY_COMPLETE": "complete_bash",
        "_CLI_PY_COMPLETE": "complete_bash",
        "COMP_WORDS": "cli.py comp",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "cli.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert "compare" in done.stdout.split()


def test_a_notebook_shows_the_latencies_and_no_markup_of_a_name() -> None:
    result = toy_run(count=60).result
    hostile = result.summary.model_copy(update={"name": "<script>", "notes": ("<b>",)})
    shown = hostile._repr_html_()
    assert "<script>" not in shown
    assert "<b>&lt;" in shown
    assert "ttft" in result._repr_html_()
    named = result.context.scenario.model_copy(update={"name": "<script>"})
    assert "&lt;script&gt;" in named._repr_html_()


def test_every_package_says_that_it_is_typed() -> None:
    for package in ("sim", "workloads", "hardware_profiles", "calibration", "reports"):
        assert (ROOT / package / "py.typed").exists()


def test_an_entry_shows_its_values_whatever_the_width(servecast: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    code, out, _ = servecast("show", "hardware", "h100-sxm")
    assert code == 0
    assert "memory.bandwidth_bytes_per_s              3.35e+12  datasheet [1]\n" in out
    assert "values; --json shows all)" in out
