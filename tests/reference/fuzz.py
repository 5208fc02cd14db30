"""Many random scenarios through the engine and the judge: ``python tests/reference/fuzz.py --seeds 1000``."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from compare import disagreement
from naive_vllm import NoProgress
from random_scenarios import from_seed, scripted


def main() -> int:
    """Print every seed at which engine and judge disagree; 1 if there was any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--scripted", action="store_true", help="arrivals by step number instead of by time")
    parser.add_argument("--speculative", action="store_true", help="with draft tokens")
    parser.add_argument("--stop-after", type=int, default=5, help="disagreements shown before giving up")
    options = parser.parse_args()
    endless = wrong = 0
    for seed in range(options.start, options.start + options.seeds):
        try:
            document = from_seed(seed, speculative=options.speculative)
            message = disagreement(scripted(document) if options.scripted else document)
        except NoProgress:
            endless += 1
            continue
        except Exception:
            message = traceback.format_exc(limit=-4)
        if message:
            wrong += 1
            print(f"seed {seed}: {message}\n", flush=True)
        if wrong == options.stop_after:
            break
    print(f"{seed - options.start + 1} seeds, {wrong} disagreements, {endless} that never end")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
