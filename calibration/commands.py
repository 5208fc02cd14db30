"""``servecast calibrate``: each command parses, calls the library, prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from calibration.fit_commands import AsJson, check_points, fit_command, import_command

EXIT_CHECK, EXIT_INTERRUPTED = 1, 130

app = typer.Typer(
    name="calibrate",
    help="Measure this machine or a real engine, and hold the simulator against it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Torch threads on the CPU; all cores where not given.", show_default=False),
]
ClockName = Annotated[
    str,
    typer.Option(
        "--clock",
        metavar="wall|core",
        help="core: what one thread used of a core, for a CPU that others use too (with --threads 1).",
    ),
]


@app.command()
def run(
    out: Annotated[Path, typer.Option("--out", metavar="FILE.parquet", help="The table to write.")],
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="What is measured.")] = "cpu",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Time the exact shapes of this model first.", show_default=False),
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "--tp", metavar="N", min=1, help="Shapes of one rank of so many.")
    ] = 1,
    budget_s: Annotated[
        float, typer.Option("--budget-s", metavar="SECONDS", min=1, help="What the run may take.")
    ] = 300.0,
    families: Annotated[
        list[str], typer.Option("--family", metavar="FAMILY", help="Only this family; repeatable.")
    ] = [],  # noqa: B006 (Typer copies it)
    grid: Annotated[bool, typer.Option(help="Also time shapes that are not the model's.")] = True,
    threads: Threads = None,
    clock: ClockName = "wall",
    as_json: AsJson = False,
) -> None:
    """Time matrix products, attention, elementwise kernels, copies and collectives of this machine with torch.

    servecast calibrate run --device cuda --model Qwen3-32B --tp 2 --out h100.parquet

    servecast calibrate run --device cpu --threads 1 --budget-s 120 --out cpu.parquet
    """
    from calibration.bench.device import open_device
    from calibration.bench.run import Plan, run_benchmarks
    from calibration.bench.table import check_target
    from sim.models.loader import load_model

    check_target(out)
    arch = load_model(model) if model else None
    plan = Plan(arch, tensor_parallel_size, budget_s, tuple(families), grid)
    opened = open_device(device, threads, cpu_time=_is_core(clock))
    say = _talker()
    outcome = run_benchmarks(opened, plan, out, lambda share, family: say(f"{share:4.0%} {family}"))
    if as_json:
        typer.echo(json.dumps({"out": str(out) if outcome.rows else None, **outcome.metadata}))
    else:
        from calibration.views import print_benchmarks

        print_benchmarks(outcome, out)
    if outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def engine(
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep the logs there.")] = None,
    logs: Annotated[
        Path | None, typer.Option("--logs", metavar="DIR", help="Fit logs of an earlier run; start no engine.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A catalogue model or a config.json; a small Llama where not given."),
    ] = None,
    arguments: Annotated[
        list[str], typer.Option("--engine-arg", metavar="KEY=VALUE", help="Setting of the engine; repeatable.")
    ] = [],  # noqa: B006
    requests: Annotated[int, typer.Option(metavar="N", min=5, help="Of each mix.")] = 40,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --profile: the profile whose kernels the engine ran on.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Write that profile with this engine's host terms, for a scenario."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the real vLLM with random weights on a short ladder of loads, fit its step time and host terms, and compare.

    servecast calibrate engine --out runs/mine

    servecast calibrate engine --model Qwen3-8B --engine-arg max_num_seqs=64 --out runs/qwen

    servecast calibrate engine --logs runs/mine --hardware h100-sxm --profile my-h100.yaml
    """
    from calibration.engine_runs.calibrate import as_dict, calibrate_logs
    from calibration.engine_runs.session import own_profile, run_session

    base = own_profile(hardware, profile)
    found = calibrate_logs(logs) if logs else run_session(model, arguments, out, requests, _talker())
    if base is not None and profile is not None:
        from calibration.fit_writer import write_profile

        write_profile(found.profile(base), profile)
    if as_json:
        typer.echo(json.dumps(as_dict(found)))
    else:
        from calibration.views import print_engine

        print_engine(found)


app.command("import")(import_command)
app.command("fit")(fit_command)


@app.command()
def check(
    points: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.parquet", help="Points of calibrate run or import.", show_default=False),
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile to hold against the points.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the roofline with the points on it (.png, .svg, .pdf).", show_default=False
        ),
    ] = None,
    end_to_end: Annotated[
        bool, typer.Option("--end-to-end", help="Serve a real decoder on this CPU and compare with the prediction.")
    ] = False,
    models: Annotated[str, typer.Option(metavar="A,B,...", help="Of gqa, mla, gqa-small, mla-small.")] = "gqa,mla",
    small: Annotated[bool, typer.Option("--small", help="Seconds instead of minutes; less to judge by.")] = False,
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Torch threads.")] = 1,
    clock: ClockName = "wall",
    as_json: AsJson = False,
) -> None:
    """Residuals of a profile by kernel family; or, end to end, a real decoder on this CPU against its prediction.

    End to end it measures, fits, predicts and serves a small decoder; exit code 1 if a target is missed.

    servecast calibrate check h100.parquet --hardware h100-sxm --plot roofline.png

    servecast calibrate check --end-to-end

    servecast calibrate check --end-to-end --models gqa --clock core
    """
    from calibration.bench.device import open_device
    from calibration.closed_loop.check import FULL, SMALL, as_dict, check_end_to_end
    from sim.errors import InputError

    if points is not None and hardware is not None and not end_to_end:
        check_points(points, hardware, plot, as_json)
        return
    if not end_to_end:
        raise InputError("FILE.parquet", "points and --hardware are needed", "give both, or give --end-to-end")
    opened = open_device("cpu", threads, cpu_time=_is_core(clock))
    names = [name.strip() for name in models.split(",")]
    found = check_end_to_end(opened, names, SMALL if small else FULL, _talker())
    if as_json:
        typer.echo(json.dumps([as_dict(model) for model in found]))
    else:
        from calibration.views import print_end_to_end

        print_end_to_end(found)
    if not all(load.met for model in found for load in model.loads):
        raise typer.Exit(EXIT_CHECK)


def _is_core(clock: str) -> bool:
    from sim.errors import InputError, nearest

    if clock not in ("wall", "core"):
        raise InputError("--clock", f"unknown clock {clock!r}", nearest(clock, ("wall", "core")))
    return clock == "core"


def _talker() -> Callable[[str], Any]:
    """What goes on, on stderr and only to a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda sentence: typer.echo(f"\r\033[K{sentence}", err=True, nl=False)
