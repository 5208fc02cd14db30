"""``servecast calibrate import`` and ``fit``, and a table of residuals: parse, call the library, print."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
Hardware = Annotated[str, typer.Option("--hardware", metavar="NAME", help="Profile to start from: name or YAML file.")]
_ATTRIBUTION = """Kernel figures fitted to the tables of aiconfigurator-core.
SPDX-FileCopyrightText: Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved.
SPDX-License-Identifier: Apache-2.0
Changes: laws and correction grids were fitted to the measured latencies; the tables themselves are not contained."""


def import_command(
    hardware: Hardware,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.parquet", help="The table of points to write.")],
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the wheel was unpacked; the installed package where not given."),
    ] = None,
) -> None:
    """Read published kernel times (PyPI package aiconfigurator-core 0.12.0, Apache-2.0) of one device.

    servecast calibrate import --hardware h100-sxm --out h100.parquet
    """
    from calibration.importer import import_points

    points = import_points(hardware, folder)
    points.to_parquet(out, index=False)
    typer.echo(f"{len(points):,} points of {points.family.nunique()} families in {out}", err=True)


def fit_command(
    points: Annotated[Path, typer.Argument(metavar="FILE.parquet", help="Points of calibrate run or import.")],
    hardware: Hardware,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.yaml", help="The profile to write.")],
    as_json: AsJson = False,
) -> None:
    """Fit the kernels of a profile to measured points and write the profile; prints how well unseen shapes are met.

    servecast calibrate fit h100.parquet --hardware h100-sxm --out my-h100.yaml
    """
    from calibration.check import check_profile
    from calibration.fit import fit_kernels
    from calibration.fit_points import read_points
    from calibration.fit_writer import write_profile
    from hardware_profiles import load_hardware

    base, table = load_hardware(hardware), read_points(points)
    profile = base.model_copy(update={"kernels": fit_kernels(table, base)})
    published = table.source.str.contains("aiconfigurator-core").any()
    write_profile(profile, out, _ATTRIBUTION if published else "")
    print_residuals([asdict(line) for line in check_profile(table, profile)], as_json)


def check_points(points: Path, hardware: str, plot: Path | None, as_json: bool) -> None:
    """Print how well a profile meets a table of points, and draw the roofline with them on it."""
    from calibration.check import check_profile, draw_roofline
    from calibration.fit_points import read_points
    from hardware_profiles import load_hardware

    profile, table = load_hardware(hardware), read_points(points)
    if plot is not None:
        draw_roofline(table, profile, plot)
    print_residuals([asdict(line) for line in check_profile(table, profile, unseen=False)], as_json)


def print_residuals(lines: list[dict[str, float | int | str | bool]], as_json: bool) -> None:
    """A table of residuals, or the same as JSON."""
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("family", "dtype", "rows", "median", "p90", "worst", "bias", "shapes")
    for line in lines:
        shares = [f"{line[name]:+.1%}" if name == "bias" else f"{line[name]:.1%}" for name in _SHARES]
        head = [str(line["family"]), str(line["dtype"]), f"{line['rows']:,}"]
        table.add_row(*head, *shares, "unseen" if line["unseen"] else "all")
    Console().print(table)


_SHARES = ("median", "p90", "worst", "bias")
