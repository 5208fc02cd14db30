"""The ``servecast plan`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.options import AsJson, Overrides, ScenarioFile, Seed, edits
from reports.sweep_command import Address, ExecutorName, Workers

EXIT_NOTHING = 1

_Money = "Budgets and prices"
_Space = "What to choose from"


def _values(what: str, metavar: str = "A,B,...") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar=metavar, help=what, show_default=False, rich_help_panel=_Space
    )
    return option


def plan(
    scenario: ScenarioFile,
    hardware: Annotated[str, _values("Profiles to choose from; the scenario's where not given.")] = "",
    max_gpus: Annotated[
        int, typer.Option(metavar="N", help="GPUs of the whole deployment.", rich_help_panel=_Money)
    ] = 8,
    max_usd_per_hour: Annotated[
        float | None,
        typer.Option(metavar="DOLLARS", help="What the whole deployment may cost an hour.", rich_help_panel=_Money),
    ] = None,
    max_watts: Annotated[
        float | None,
        typer.Option(metavar="WATTS", help="Of all GPUs, each at its power limit.", rich_help_panel=_Money),
    ] = None,
    price: Annotated[
        list[str], typer.Option(metavar="HARDWARE=DOLLARS", help="Of a GPU hour; repeatable.", rich_help_panel=_Money)
    ] = [],  # noqa: B006 (Typer copies it)
    tensor_parallel: Annotated[str, _values("Sizes to try; all that divide the model where not given.")] = "",
    pipeline_parallel: Annotated[str, _values("Stages to try; 1 where not given.")] = "",
    disaggregation: Annotated[
        bool, typer.Option("--disaggregation", help="Also try prefill and decode apart.", rich_help_panel=_Space)
    ] = False,
    quantization: Annotated[str, _values("Weight formats, e.g. stored,fp8; the scenario's where not given.")] = "",
    kv_cache_dtype: Annotated[str, _values("Cache formats, e.g. auto,fp8; the scenario's where not given.")] = "",
    max_num_seqs: Annotated[str, _values("Batch sizes to try; the scenario's where it gives one.")] = "",
    max_num_batched_tokens: Annotated[str, _values("Step sizes to try; the scenario's where it gives one.")] = "",
    min_attainment: Annotated[
        float, typer.Option(metavar="SHARE", help="Of requests within every bound of slo.goodput_*.")
    ] = 0.99,
    error_band: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Error of step times within which deployments tie; that of each device's profile (p90).",
            show_default=False,
        ),
    ] = None,
    rate_curve: Annotated[
        str | None, typer.Option(metavar="FILE|A,B,...", help="Load over a day, for replicas by the hour.")
    ] = None,
    what_ifs: Annotated[
        bool, typer.Option("--what-ifs/--no-what-ifs", help="Ask what other traffic would change.")
    ] = True,
    overrides: Overrides = [],  # noqa: B006
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write plan, tables, plots and commands; points kept there are not run again."
        ),
    ] = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Find the cheapest deployment that keeps the scenario's promise (its slo section) for its traffic.

    servecast plan examples/llama-70b-h100.yaml --max-gpus 16

    servecast plan chat.yaml --hardware h100-sxm,h200-sxm,l40s --quantization stored,fp8 --max-usd-per-hour 40
    """
    from reports.plan_run import parse_options, run_plan

    options = parse_options(
        hardware=hardware,
        max_gpus=max_gpus,
        max_usd_per_hour=max_usd_per_hour,
        max_watts=max_watts,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        disaggregation=disaggregation,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prices=price,
        min_attainment=min_attainment,
        error_band=error_band,
    )
    found = run_plan(
        scenario,
        options,
        overrides=edits(overrides, seed),
        rate_curve=rate_curve,
        what_ifs=what_ifs,
        out=out,
        executor=executor,
        address=address,
        workers=workers,
        as_json=as_json,
    )
    if not found:
        raise typer.Exit(EXIT_NOTHING)
