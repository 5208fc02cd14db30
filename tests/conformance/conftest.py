"""Every scenario of the oracle folder, in both modes."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle_format import names


def oracle_directory(config: pytest.Config) -> Path:
    """The folder of ``--oracle-dir``, relative to where pytest was started."""
    return config.invocation_params.dir / config.getoption("--oracle-dir")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" not in metafunc.fixturenames:
        return
    directory = oracle_directory(metafunc.config)
    found = names(directory)
    if not found:
        raise pytest.UsageError(f"--oracle-dir: no NAME.input.json in {directory}")
    metafunc.parametrize("scenario", found)


@pytest.fixture
def oracle_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of the scenarios."""
    return oracle_directory(request.config)
