"""Compiles the event loop with mypyc where ``SERVECAST_COMPILE=1`` asks for it; all else is in pyproject.toml.

The compiled modules are the same sources, so they decide the same; see docs/performance.md.
"""

import os
import sys

from setuptools import setup

MODULES = {
    "sim": "records",
    "sim/engine": "config contention decoding inbox jump lockstep log pauses process queue recorder replica request"
    " scheduler speculative speculative_acceptance speculative_config speculative_group speculative_jump"
    " speculative_rows state step vllm",
    "sim/engine/kv": "pool prefix segments",
    "sim/cost": "attention decode kernels shape step table",
    "sim/cluster": "arrivals fleet handover links",
}
BUILDS = {"bdist_wheel", "build_ext", "editable_wheel"}
wanted = os.environ.get("SERVECAST_COMPILE", "0") == "1"

extensions = []
if wanted and BUILDS & set(sys.argv):  # not for metadata alone
    from mypyc.build import mypycify

    sources = [f"{folder}/{name}.py" for folder, names in MODULES.items() for name in names.split()]
    options = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]
    extensions = mypycify([*options, *sources], opt_level="3", group_name="sim.engine.hot")

setup(ext_modules=extensions, setup_requires=["mypy>=2.4,<3", "numpy", "simpy"] if wanted else [])
