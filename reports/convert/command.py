"""The ``servecast convert`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A serve command (quoted, or a script), a scenario, a benchmark's result, a trace, or metrics.",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option("--from", metavar="KIND", help="What SOURCE is; found out where not given.", show_default=False),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="Of a scenario vllm, sglang or trtllm; of a trace its format.", show_default=False
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of stdout.", show_default=False)]
Hardware = Annotated[str | None, typer.Option(metavar="NAME", help="The GPU, which most sources do not say.")]
Deployment = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Scenario of the deployment that a result was measured on.")
]
Seconds = Annotated[float | None, typer.Option(metavar="N", help="Over which a dump of /metrics was counted.")]


def convert(
    source: Source,
    kind: Kind = None,
    to: To = None,
    out: Out = None,
    hardware: Hardware = None,
    scenario: Deployment = None,
    seconds: Seconds = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if something was not understood.")] = False,
) -> None:
    """Turn a serve command, a benchmark's result, a trace or a server's metrics into servecast's documents, and back.

    servecast convert "vllm serve meta-llama/Llama-3.1-8B -tp 2" --hardware h100-sxm --out chat.yaml

    servecast convert examples/llama-70b-h100.yaml --to sglang

    servecast convert requests.csv --to mooncake --out requests.jsonl
    """
    from reports.convert.run import Asked
    from reports.convert.run import convert as turn

    done = turn(Asked(source, kind, to, out, hardware, scenario, seconds))
    if done.text and out is not None:
        from sim.files import whole_file

        with whole_file(out, "--out") as partial:
            partial.write_text(done.text, encoding="utf-8")
    elif done.text:
        typer.echo(done.text, nl=False)
    for note in (*done.unknown, *done.notes):
        typer.echo(f"servecast: {note}", err=True)
    if strict and done.unknown:
        raise typer.Exit(1)
