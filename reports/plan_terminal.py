"""A plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.plan_bench import bench_commands
from reports.plan_serve import ENGINES, serve_commands
from reports.text import count, number, percent, seconds, usd
from sim.planner.outcome import DayPlan, Deployment, Plan, Row
from sim.scenario import Scenario


def print_plan(
    plan: Plan, winner: Scenario | None, out: Path | None, wall_s: float, console: Console | None = None
) -> None:
    """Print the question, the winner and why, the alternatives, what would change the answer, and the commands."""
    console = console or Console(highlight=False)
    console.print(_question(plan))
    if plan.winner is None or winner is None:
        _print_nothing(plan, console)
    else:
        _print_winner(plan, plan.winner, console)
        console.print(Padding(_kinds(plan, console.width), (1, 0, 0, 0)))
        _print_legend(plan, console)
        _print_list("what does not keep the promise", _refused(plan), console)
        _print_list("what would change the answer", _changes(plan), console)
        if plan.day is not None:
            _print_day(plan.day, plan.question.unit, console)
        _print_commands(winner, out, console)
    console.print(Text(f"\n{_search(plan, wall_s)}", style="dim"))
    for note in plan.notes:
        console.print(Text.assemble(("! ", "bold yellow"), note))
    if out is not None:
        console.print(Text(f"\nWritten to {out}"))


def _question(plan: Plan) -> Text:
    q = plan.question
    bounds = ", ".join(f"{words(key)} <= {seconds(bound)}" for key, bound in q.promise.items())
    share = f" for {percent(q.min_attainment)} of requests" if any(k.startswith("goodput") for k in q.promise) else ""
    budget = [f"{q.max_gpus} GPUs"]
    budget += [f"{usd(q.max_usd_per_hour)}/h"] if q.max_usd_per_hour else []
    budget += [f"{q.max_watts / 1e3:.3g} kW"] if q.max_watts else []
    where = ", ".join(map(short, q.hardware))
    return Text.assemble(
        (plan.name, "bold"),
        f"  {short(q.model)}, {number(q.load)} {q.unit}\n",
        f"promise  {bounds}{share}\n",
        f"budget   {', '.join(budget)} ({where})",
    )


# -- the winner -------------------------------------------------------------------------------------------------------


def _print_winner(plan: Plan, row: Row, console: Console) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    d = row.deployment
    price = "" if row.usd_per_hour is None else f", {usd(row.usd_per_hour)}/h"
    facts.add_row("winner", Text(f"{name_of(d)} on {count(d.gpus, 'GPU')} ({short(d.hardware)}){price}", "bold green"))
    facts.add_row("", f"max_num_seqs {d.max_num_seqs}, max_num_batched_tokens {d.max_num_batched_tokens}{_formats(d)}")
    for key, m in row.promise.items():
        sure = f" ({seconds(m.low_s)} to {seconds(m.high_s)})" if m.low_s is not None else ""
        facts.add_row(words(key), f"{seconds(m.value_s)}{sure}, {percent(m.value_s / m.bound_s)} of the bound")
    slower = row.band.replicas_if_slower
    needs = name_of(d.model_copy(update={"replicas": slower})) if slower else "more than the budget allows"
    needs = "no more than that" if slower == d.replicas else needs
    facts.add_row("how sure", f"with steps slower by the error of the profile it takes {needs}")
    facts.add_row("headroom", _headroom(plan, row))
    facts.add_row("cost", _cost(row))
    ties = [_called(plan, other.deployment) for other in plan.rows if other.tie]
    if ties:
        facts.add_row("a tie", f"with {', '.join(ties)}: within {percent(plan.question.error_band)} of the step times "
                               "they may cost no more")  # fmt: skip
    console.print(Padding(facts, (1, 0, 0, 0)))


def _headroom(plan: Plan, row: Row) -> str:
    if row.most_load is None or row.headroom is None:
        return "-"
    limit = f"; beyond: {row.limit}" if row.limit else ""
    return f"{percent(row.headroom)}, up to {number(row.most_load)} {plan.question.unit}{limit}"


def _cost(row: Row) -> str:
    parts = []
    if row.usd_per_million_output_tokens is not None:
        output, total = usd(row.usd_per_million_output_tokens), usd(row.usd_per_million_total_tokens)
        parts.append(f"a million tokens: {output} output, {total} in all")
    if row.headroom_usd_per_hour is not None:
        parts.append(f"headroom {usd(row.headroom_usd_per_hour)}/h")
    if row.watts is not None:
        kwh = row.kwh_per_million_output_tokens
        parts.append(f"{row.watts / 1e3:.3g} kW" + (f", {kwh:.3g} kWh a million output tokens" if kwh else ""))
    return "; ".join(parts) or "-"


# -- the alternatives -------------------------------------------------------------------------------------------------


def _kinds(plan: Plan, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    answered = plan.winner is not None
    bounds = [key for key in plan.question.promise if not key.startswith("goodput")][: 2 if width < 110 else 3]
    bounds = bounds if answered else []
    several = len(plan.question.hardware) > 1
    table.add_column("")
    table.add_column("layout", no_wrap=True)
    if several:
        table.add_column("hardware", no_wrap=True)
    table.add_column("GPUs", justify="right")
    table.add_column("$/h" if plan.question.ranked_by == "usd_per_hour" else "cost", justify="right")
    for key in bounds:
        table.add_column(words(key), justify="right", no_wrap=True)
    if answered:
        table.add_column("headroom", justify="right")
    wide = answered and width >= 110
    for title in ("out/s/GPU", "tokens/s/user") if wide else ():
        table.add_column(title, justify="right")
    table.add_column("what limits it" if answered else "why not", overflow="fold", style="dim" if answered else "")
    for place, row in enumerate(plan.rows):
        if row.keeps or not answered:
            table.add_row(*_cells(row, place, plan, bounds, several, wide))
    return table


def _cells(row: Row, place: int, plan: Plan, bounds: list[str], several: bool, wide: bool) -> list[str | Text]:
    d = row.deployment
    if row.keeps:
        mark = Text("*", "bold green") if place == 0 and plan.winner else Text("=" if row.tie else "", "yellow")
    else:
        mark = Text("x", "red")
    cells: list[str | Text] = [mark, name_of(d) + format_tag(d)]
    cells += [short(d.hardware)] if several else []
    cells += [str(d.gpus), usd(row.usd_per_hour)]
    for key in bounds:
        measured = row.promise.get(key)
        cells.append(seconds(measured.value_s) if measured else "-")
    cells += [percent(row.headroom)] if plan.winner is not None else []
    if wide:
        cells += [number(row.output_tokens_per_s_per_gpu), number(row.output_tokens_per_s_per_user)]
    return [*cells, brief(row.limit) if row.keeps else Text(row.why)]


def _print_legend(plan: Plan, console: Console) -> None:
    signs = ["* winner"]
    signs += ["= a tie with it"] if any(row.tie for row in plan.rows) else []
    signs += ["(prefill + decode)"] if any(row.deployment.split for row in plan.rows) else []
    console.print(Text("   ".join(signs), style="dim"))


def _refused(plan: Plan) -> Iterator[tuple[str, Text]]:
    for row in plan.rows:
        if not row.keeps:
            yield _called(plan, row.deployment), Text(row.why, "dim")


def _print_list(title: str, lines: Iterable[tuple[str, str | Text]], console: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, text)
    if table.row_count:
        console.print(Text(f"\n{title}", "bold"))
        console.print(table)


# -- what would change the answer -------------------------------------------------------------------------------------


def _changes(plan: Plan) -> Iterator[tuple[str, str | Text]]:
    if plan.holds_between is not None:
        low, high = plan.holds_between
        yield f"{number(low)} to {number(high)} {plan.question.unit}", Text("nothing", "dim")
    for one in plan.what_ifs:
        if one.same:
            yield one.question, Text("nothing", "dim")
        elif one.answer is None:
            yield one.question, Text("none of the best few keeps the promise within the budget", "yellow")
        else:
            price = f", {usd(one.cost)}/h" if plan.question.ranked_by == "usd_per_hour" else ""
            yield one.question, f"{_called(plan, one.answer)} ({count(one.answer.gpus, 'GPU')}{price})"
    for hardware, price_usd in plan.prices.items():
        yield f"{short(hardware)} below {usd(price_usd)} a GPU hour", "it costs less than the winner"


def _print_day(day: DayPlan, unit: str, console: Console) -> None:
    console.print(Text("\na day", "bold"))
    most = max((hour.replicas or 0 for hour in day.hours), default=0) or 1
    for hour in day.hours:
        bar = "?" if hour.replicas is None else "#" * max(0, round(24 * hour.replicas / most))
        replicas = "too few GPUs" if hour.replicas is None else str(hour.replicas)
        console.print(
            f"{hour.start_h:5.1f} h  {number(hour.load):>7} {unit}  {replicas:>3}  ", Text(bar, "green"), sep=""
        )
    if day.saved is not None and day.gpu_hours is not None and day.static_gpu_hours is not None:
        money = "" if day.usd is None else f", {usd(day.usd)} instead of {usd(day.static_usd)} a day"
        console.print(
            f"{number(day.gpu_hours)} GPU hours instead of {number(day.static_gpu_hours)} with {day.static_replicas} "
            f"replicas all day: {percent(day.saved)} less{money}"
        )


def _print_commands(winner: Scenario, out: Path | None, console: Console) -> None:
    own, *others = serve_commands(winner)
    console.print(Text(f"\nserve it ({ENGINES[own.engine]})", "bold"))
    for line in own.lines:
        console.print(Text(line), soft_wrap=True)
    for note in own.notes:
        console.print(Text(f"  {note}", "dim"))
    bench = bench_commands(winner)[0]
    console.print(Text("\nverify it", "bold"))
    console.print(Text(bench.line), soft_wrap=True)
    rest = ", ".join([ENGINES[command.engine] for command in others] + ["inference-perf", "guidellm"])
    where = f"in {out / 'serve.md'}" if out is not None else "written with --out, printed with --json"
    console.print(Text(f"commands for {rest}: {where}", "dim"))


# -- nothing feasible -------------------------------------------------------------------------------------------------


def _print_nothing(plan: Plan, console: Console) -> None:
    console.print(Text("\nNothing keeps the promise within the budget.", "bold red"))
    console.print(Padding(_kinds(plan, console.width), (1, 0, 0, 0)))
    if not plan.relaxations:
        console.print("\nNo single relaxation that was tried helps.")
        return
    console.print(Text("\nwhat would have to give way, the least first", "bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for one in plan.relaxations:
        table.add_row(one.what, one.text)
    console.print(table)


# -- words ------------------------------------------------------------------------------------------------------------


def name_of(deployment: Deployment) -> str:
    """2 x TP4; a unit of a split in brackets."""
    label = f"({deployment.label})" if deployment.split else deployment.label
    return f"{deployment.replicas} x {label}"


def words(key: str) -> str:
    """ttft_p99_s as TTFT p99."""
    metric, statistic, _ = key.split("_")
    return f"each {statistic.upper()}" if metric == "goodput" else f"{metric.upper()} {statistic}"


def _called(plan: Plan, d: Deployment) -> str:
    """Layout and number formats, and the GPU where there is a choice."""
    return name_of(d) + format_tag(d) + (f" on {short(d.hardware)}" if len(plan.question.hardware) > 1 else "")


def brief(limit: str) -> str:
    """A binding limit without its details."""
    return limit.split(";")[0]


def short(name: str) -> str:
    """A path by its last part, a name as it is."""
    path = Path(name)
    return (path.parent.name if path.name == "config.json" else path.stem) if path.is_absolute() else name


def _formats(d: Deployment) -> str:
    weights = f", weights in {d.quantization}" if d.quantization else ""
    cache = f", KV cache in {d.kv_cache_dtype}" if d.kv_cache_dtype != "auto" else ""
    return weights + cache


def format_tag(d: Deployment) -> str:
    """Number formats other than the stored ones, behind a layout's name."""
    tag = "/".join(filter(None, (d.quantization, None if d.kv_cache_dtype == "auto" else f"kv {d.kv_cache_dtype}")))
    return f" {tag}" if tag else ""


def _search(plan: Plan, wall_s: float) -> str:
    c = plan.counts
    settled = [f"{c.refuted} refuted by bounds"] if c.refuted else []
    settled += [f"{c.inferred} known from a run that is the same"] if c.inferred else []
    settled += [f"{c.without_memory} without the memory"] if c.without_memory else []
    return (
        f"{count(c.considered, 'deployment')} of {count(c.kinds, 'kind')} considered"
        + (f" ({', '.join(settled)})" if settled else "")
        + f"; {count(c.searched, 'simulation')} found the answer, {c.simulated} in all; {seconds(wall_s)}"
    )
