"""Writes the summaries of the examples that `test_examples.py` compares with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).parent / "baseline"
EXAMPLES = (
    "agent-sessions",
    "azure-conversation",
    "closed-loop",
    "deepseek-v3-h200",
    "disaggregated",
    "faulty-fleet",
    "llama-70b-h100",
    "llama-8b-l40s",
    "mixtral-prefix",
    "pipeline-l40s",
)
REQUESTS = 200
LONGER = {"faulty-fleet": 8000}  # until all of its events have happened


def write_summaries(folder: Path) -> None:
    """A short run of each example, as ``NAME.json``."""
    from sim import Scenario, simulate

    for name in EXAMPLES:
        scenario = Scenario.from_file(ROOT / "examples" / f"{name}.yaml")
        result = simulate(scenario.with_overrides([f"workload.num_requests={LONGER.get(name, REQUESTS)}"]))
        document = json.loads(result.summary.to_json())
        document["simulation"]["wall_s"] = 0.0
        (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    BASELINE.mkdir(exist_ok=True)
    write_summaries(BASELINE)
