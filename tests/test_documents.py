"""What the README and the docs say is true of the code."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from reports.terminal import print_summary
from sim import Scenario, simulate
from sim.layout import Layout
from sim.scenario import EngineSpec, SloSpec
from sim.scenario.support import require_supported

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
COMPARISONS = [path for path in EXAMPLES if "variants" in yaml.safe_load(path.read_text())]


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path not in COMPARISONS], ids=lambda path: path.stem)
def test_an_example_is_a_valid_scenario_that_can_be_simulated(path: Path) -> None:
    scenario = Scenario.from_file(path)
    require_supported(scenario)
    assert path.read_text().startswith("# "), "an example says what it asks"


def test_the_readme_lists_every_example() -> None:
    linked = set(re.findall(r"\(examples/([a-z0-9-]+)\.yaml\)", (ROOT / "README.md").read_text()))
    assert linked == {path.stem for path in EXAMPLES}


def test_the_scenario_of_the_readme_is_valid() -> None:
    text = (ROOT / "README.md").read_text().split("## A scenario")[1]
    block = re.search(r"\n((?:    .*\n)+)", text)
    assert block is not None
    Scenario.from_dict(yaml.safe_load(block.group(1)))


def test_the_answer_in_the_readme_is_what_its_first_command_prints() -> None:
    scenario = Scenario.from_file(ROOT / "examples" / "llama-70b-h100.yaml")
    console = Console(width=130, record=True, highlight=False, file=io.StringIO())
    print_summary(simulate(scenario).summary, scenario, None, console)
    printed = [re.sub("simulated in .*", "", line).rstrip() for line in console.export_text().splitlines()]
    readme = (ROOT / "README.md").read_text().split("The answer to the first:\n\n")[1].split("\n\nThen ask")[0]
    shown = [re.sub("simulated in .*", "", line).removeprefix("    ").rstrip() for line in readme.splitlines()]
    assert shown == printed


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_scenario_page_has_every_key_and_its_default() -> None:
    page = (ROOT / "docs" / "scenario.md").read_text()
    for key in [*EngineSpec.model_fields, *Layout.model_fields]:
        assert f"`{key}`" in page, key
    rows = re.findall(r"^\| `(\w+)` \|", page.split("## engine")[1].split("## cluster")[0], re.M)
    assert len(rows) == len(set(rows)), "a key stands twice"
    defaults = EngineSpec.parse({})
    for key, shown in re.findall(
        r"^\| `(\w+)` \| ([\w.]+) \|", page.split("## engine")[1].split("## cluster")[0], re.M
    ):
        value = getattr(defaults, key)
        assert str(yaml.safe_load(shown)) == str(getattr(value, "key", value)), key


def test_the_slo_page_names_every_metric() -> None:
    page = (ROOT / "docs" / "scenario.md").read_text().split("## slo")[1]
    for key in SloSpec.model_fields:
        metric, statistic, _ = key.split("_")
        assert f"`{key}`" in page or (f"`{metric}`" in page and f"`_{statistic}_s`" in page), key
