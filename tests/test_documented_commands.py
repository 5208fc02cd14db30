"""Every command that the README and the docs show is run, page by page, in the order of the page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml

import cli

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "reports"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Commands that cannot run here, and where what they do is tested instead.
ELSEWHERE = {
    "servecast calibrate run": "needs torch: tests/calibration",
    "servecast calibrate engine --out": "needs vLLM: tests/calibration",
    "servecast calibrate engine --model": "needs vLLM: tests/calibration",
    "--logs runs/qwen": "of an engine that the page ran before: tests/calibration",
    "servecast validate tests/accuracy": "takes minutes: tests/accuracy",
    "--executor": "needs a cluster: tests/planner",
}
#: Exit code 1 of these says that something differs, which the page may want to show.
MAY_SAY_NO = ("compare", "validate")
CHAT = """
name: chat
model: meta-llama/Llama-3.1-8B
hardware: h100-sxm
workload:
  num_requests: 40
  arrivals: {process: poisson, rate_per_s: 5}
  prompt_tokens: {distribution: uniform, min: 20, max: 600}
  output_tokens: {distribution: uniform, min: 2, max: 60}
slo: {ttft_p99_s: 1}
"""


def commands_of(page: Path) -> list[str]:
    """Lines of code blocks that begin with the program's name; a backslash at the end goes on."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|sh|console)?\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^    (servecast .*)$", text, re.M)
    return [line.strip() for line in lines if line.strip().startswith("servecast ") and "COMMAND" not in line]


def runnable(page: Path) -> Iterator[list[str]]:
    for line in commands_of(page):
        if not any(words in line for words in ELSEWHERE):
            yield shlex.split(line, comments=True)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    target = None
    if ">" in words:
        at = words.index(">")
        words, target = words[:at], Path(words[at + 1])
    monkeypatch.setattr(sys, "argv", words)
    try:
        if target is None:
            cli.main()
        else:
            with target.open("w") as file, redirect_stdout(file):
                cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages speak of as the reader's own."""
    from test_convert_results import METRICS, VLLM_RESULT

    folder = tmp_path_factory.mktemp("material")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("chat.yaml").write_text(CHAT)
        for name in ("main", "branch"):
            assert run(["servecast", "simulate", "chat.yaml", "--out", f"runs/{name}"], patch) == 0
            sweep = ["servecast", "sweep", "chat.yaml", "--vary", "seed=0,1", "--workers", "1"]
            assert run([*sweep, "--out", f"sweeps/{name}"], patch) == 0
        for name in ("baseline", "candidate"):
            Path(name).mkdir()
            shutil.copy("runs/main/summary.json", f"{name}/chat.json")
        for name in ("baseline.json", "summary.json"):
            shutil.copy("runs/main/summary.json", name)
        tolerances = re.search(r"```yaml\n(default.*?)```", (ROOT / "docs" / "howto-ci.md").read_text(), re.S)
        assert tolerances is not None
        Path("tolerances.yaml").write_text(tolerances[1])
        Path("result.json").write_text(json.dumps(VLLM_RESULT))
        Path("metrics.txt").write_text(METRICS)
        Path("requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,120,7\n0.25,30,9\n1.5,50,1\n")
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if any(runnable(page))], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(material, tmp_path, dirs_exist_ok=True)
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for words in runnable(page):
        code = run(words, monkeypatch)
        complaint = capsys.readouterr().err
        assert code == 0 or (code == 1 and words[1] in MAY_SAY_NO), f"{shlex.join(words)}: {complaint}"


def test_every_exception_is_of_use() -> None:
    lines = [line for page in PAGES for line in commands_of(page)]
    assert len(lines) > 30
    unused = [words for words in ELSEWHERE if not any(words in line for line in lines)]
    assert not unused


def test_the_example_workflow_is_yaml_and_its_commands_are_known() -> None:
    workflow = yaml.safe_load((ROOT / "docs" / "examples" / "github-action.yaml").read_text())
    runs = "\n".join(step.get("run", "") for step in workflow["jobs"]["compare"]["steps"])
    import typer

    known = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"servecast ([a-z]+)", runs.replace("install servecast", ""))) <= set(known)


def test_the_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    commands = (tmp_path / "reference-commands" / "index.html").read_text()
    assert "--any-change" in commands
    assert "gpu_memory_utilization" in (tmp_path / "reference-scenario" / "index.html").read_text()
