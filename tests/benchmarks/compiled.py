"""servecast with a compiled event loop, beside the tree: `python tests/benchmarks/compiled.py` builds it, prints where.

It takes a C compiler and one to three minutes, once for each state of the sources. Tests run on it with

    PYTHONSAFEPATH=1 PYTHONPATH=$(python tests/benchmarks/compiled.py) python -m pytest tests/conformance
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sim", "hardware_profiles", "workloads", "calibration", "reports")
FILES = ("cli.py", "setup.py", "pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")


def copy_sources(folder: Path) -> str:
    """Copy what an installation is made of into ``folder``; return a fingerprint of it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=LEFT_OUT)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    digest = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def build() -> Path:
    """The folder of the compiled installation of the present sources; built if it is not there.

    Raises:
        subprocess.CalledProcessError: it cannot be compiled here; the compiler has said why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "sources"
        sources.mkdir()
        target = ROOT / "build" / f"compiled-{copy_sources(sources)}"
        if target.exists():
            return target
        for old in target.parent.glob("compiled-*"):
            shutil.rmtree(old)
        print("compiling the event loop: one to three minutes", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{scratch}/built"]
        subprocess.run(
            [*command, str(sources)], env={**os.environ, "SERVECAST_COMPILE": "1"}, stdout=sys.stderr, check=True
        )
        target.parent.mkdir(exist_ok=True)
        shutil.move(f"{scratch}/built", target)
    return target


if __name__ == "__main__":
    print(build())
