"""The ``servecast`` command: each command parses, calls the library, prints. No logic lives here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from calibration.commands import app as calibrate_commands
from reports.commands import mount
from reports.options import AsJson, Overrides, ScenarioFile, Seed, edits
from reports.plan_command import plan
from reports.stopping import EXIT_INTERRUPTED, last_words, listen
from reports.sweep_command import sweep
from sim.errors import InputError
from sim.files import check_picture

EXIT_CHECK, EXIT_INPUT, EXIT_INTERNAL, EXIT_PIPE = 1, 2, 70, 141


class _Commands(TyperGroup):
    """Turns what a command raises into one clear message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            _complain(str(error), EXIT_INPUT)
        except KeyboardInterrupt as stop:
            _complain(*last_words(stop))
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what is still buffered
            raise typer.Exit(EXIT_PIPE) from None
        except SystemExit as stop:
            if isinstance(stop.__context__, BrokenPipeError):  # rich exits with 1, which here is a check that failed
                raise typer.Exit(EXIT_PIPE) from None
            raise
        except OSError as error:  # what no reader or writer foresaw: a name too long, a full disk
            if os.environ.get("SERVECAST_DEBUG"):
                raise
            refusal = InputError(str(error.filename or "output"), str(error.strerror or error), "check name and space")
            _complain(str(refusal), EXIT_INPUT)
        except MemoryError:
            _complain("out of memory: give fewer requests", EXIT_INPUT)


def _complain(message: str, code: int) -> None:
    typer.echo(f"servecast: {message}", err=True)
    raise typer.Exit(code) from None


app = typer.Typer(
    name="servecast",
    cls=_Commands,
    help="Forecast how a large language model will serve: latency, throughput, KV memory and cost, without a GPU.",
    epilog="Start with: servecast simulate examples/llama-70b-h100.yaml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OutputFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write summary, records, plots and timeline there.")
]
StepLog = Annotated[
    Path | None, typer.Option("--steps", metavar="FILE", help="Write a line of JSON for every engine step.")
]
Exact = Annotated[bool, typer.Option("--exact", help="One event a step instead of jumps; same result, slower.")]
ShowBand = Annotated[
    bool | None,
    typer.Option(
        "--band/--no-band",
        help="Also run with steps slower and faster by the profile's error, and show the range of each figure. "
        "On with --out, else off.",
        show_default=False,
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from sim import __version__

        typer.echo(f"servecast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def simulate(
    scenario: ScenarioFile,
    overrides: Overrides = [],  # noqa: B006 (Typer copies it)
    seed: Seed = None,
    out: OutputFolder = None,
    as_json: AsJson = False,
    steps: StepLog = None,
    exact: Exact = False,
    band: ShowBand = None,
) -> None:
    """Run one scenario and report what its users would see.

    servecast simulate examples/llama-70b-h100.yaml

    servecast simulate chat.yaml --set workload.arrivals.rate_per_s=8 --out runs/rate-8

    servecast simulate chat.yaml --json > summary.json
    """
    from reports.outputs import check_target, write_outputs
    from reports.progress import progress_bar
    from sim import Scenario
    from sim import simulate as run

    loaded = Scenario.from_file(scenario).with_overrides(edits(overrides, seed))
    if out is not None:
        check_target(out)
    if steps is not None:
        _check_step_log(steps, [scenario, *([Path(trace.path)] if (trace := loaded.workload.trace) else [])], out)
    with progress_bar(loaded.name) as progress:
        wide = out is not None if band is None else band
        result = run(loaded, exact=exact, band=wide, step_log=steps, progress=progress)
    if out is not None:
        write_outputs(result, out)
    if as_json:
        typer.echo(result.summary.to_json(), nl=False)
    else:
        from reports.terminal import print_summary

        print_summary(result.summary, loaded, out)


def _check_step_log(steps: Path, read: list[Path], out: Path | None) -> None:
    there = Path(os.path.realpath(steps))
    if any(there == Path(os.path.realpath(source.expanduser())) for source in read):
        raise InputError(
            "--steps", f"'{steps}' is read by the run: the scenario itself or its trace", "name another file"
        )
    if out is not None and there.is_relative_to(os.path.realpath(out)):
        raise InputError("--steps", f"'{steps}' lies in the folder of --out, which is made anew", "name a file outside")


@app.command()
def memory(
    scenarios: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO...", help="Scenarios, or one comparison document.", show_default=False),
    ],
    overrides: Overrides = [],  # noqa: B006 (Typer copies it)
    compare: Annotated[
        list[str],
        typer.Option(
            "--compare", metavar="KEY=A,B,...", help="A variant for each value, e.g. engine.kv_cache_dtype=bf16,fp8."
        ),
    ] = [],  # noqa: B006
    lengths: Annotated[
        str, typer.Option(metavar="N,N,...", help="Context lengths to tabulate, in tokens.", show_default=False)
    ] = "",
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME==VERSION", help="Whose memory rules count, e.g. vllm==0.23.0.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw budgets and users against context (.png, .svg, .pdf).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where each GPU's memory goes and how many users fit, without a simulation.

    servecast memory examples/llama-70b-h100.yaml

    servecast memory chat.yaml --compare model=Llama-3.1-70B,Qwen2.5-72B --compare engine.kv_cache_dtype=bf16,fp8

    servecast memory examples/gqa-vs-mla.yaml
    """
    from reports.memory_view import parse_lengths, show_memory

    show_memory(
        scenarios,
        overrides=overrides,
        compare=compare,
        lengths=parse_lengths(lengths),
        engine=engine,
        plot=plot,
        as_json=as_json,
    )


@app.command()
def validate(
    cases: Annotated[
        list[Path], typer.Argument(metavar="CASES...", help="Case files, folders or globs.", show_default=False)
    ],
    where: Annotated[
        list[str],
        typer.Option("--where", metavar="TAG=VALUE", help="Only cases with this tag, e.g. gpu=l40s; repeatable."),
    ] = [],  # noqa: B006 (Typer copies it)
    max_error: Annotated[
        list[str],
        typer.Option("--max-error", metavar="METRIC=PCT", help="Exit with 1 if a median error is larger; repeatable."),
    ] = [],  # noqa: B006
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured (.png, .svg, .pdf).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; one a core where not given.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict measured cases and report the signed error of every number.

    servecast validate cases/ --plot accuracy.png

    servecast validate cases/*.yaml --max-error ttft_s.mean=6 --max-error tpot_s.mean=2.5
    """
    from calibration.cases import load_cases, parse_tags, select
    from calibration.validate import parse_limits, validate_cases
    from reports.progress import progress_bar

    limits = parse_limits(max_error)
    if plot is not None:
        check_picture(plot)
    chosen = select(load_cases(cases), parse_tags(where))
    with progress_bar("validate") as progress:
        report = validate_cases(chosen, jobs=jobs if jobs is not None else os.cpu_count() or 1, progress=progress)
    if plot is not None:
        from calibration.validate_plot import plot_report

        plot_report(report, plot)
    broken = report.exceeding(limits)
    if as_json:
        typer.echo(report.to_json(), nl=False)
    else:
        from calibration.validate_view import print_report

        print_report(report)
    for sentence in broken:
        typer.echo(f"servecast: {sentence}", err=True)
    if broken:
        raise typer.Exit(EXIT_CHECK)


app.command()(plan)
app.command()(sweep)


app.add_typer(calibrate_commands, name="calibrate")
mount(app)


def main() -> None:
    """Run the command line; every failure is one message on stderr and an exit code, never a traceback."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for as long as the process lives)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    listen()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if os.environ.get("SERVECAST_DEBUG"):
            raise
        print(f"servecast: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("  remedy: this is a defect; SERVECAST_DEBUG=1 shows where it happened", file=sys.stderr)
        sys.exit(EXIT_INTERNAL)


if __name__ == "__main__":
    main()
