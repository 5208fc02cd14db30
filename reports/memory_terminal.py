"""A memory budget as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.memory_cases import Asked, Case
from reports.memory_report import concurrency_row, swap_row, waste_row
from reports.text import count, gib, number, percent
from sim.layout import Layout
from sim.models.budget import MemoryBudget
from sim.models.fit import DoesNotFit
from sim.models.kv_cache import LayerCache

_BAR: Final = 40  # cells for the whole memory of a GPU
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_COLOURS: Final = {"weights": "blue", "activations": "yellow", "overhead": "magenta", "KV cache": "green"}


def print_memory(asked: Asked, plot: Path | None = None, console: Console | None = None) -> None:
    """One case in full, several as a table."""
    console = console or Console(highlight=False)
    if len(asked.cases) == 1:
        _print_one(asked.cases[0], asked.lengths, console)
    else:
        _print_several(asked, console)
    if plot is not None:
        console.print(Text(f"\nDrawn to {plot}"))


def _print_one(case: Case, lengths: tuple[int, ...], console: Console) -> None:
    budget = case.budget
    assert budget is not None
    console.print(_headline(case, budget))
    console.print(_bars(budget))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, value in _facts(case, budget):
        facts.add_row(label, value)
    console.print(facts)
    console.print()
    console.print(_concurrency(budget, lengths))
    for note in budget.arch.notes:
        console.print(Text.assemble(("! ", "bold yellow"), note))


def _headline(case: Case, budget: MemoryBudget) -> Text:
    layout = case.scenario.layout
    gpus = f"{layout.gpus_per_replica} x {case.hardware.name}"
    where = f"{gpus} ({short_layout(layout)})" if layout.gpus_per_replica > 1 else gpus
    return Text.assemble(
        (case.label, "bold"),
        f"  {case.scenario.model} on {where}\n",
        (f"memory of {budget.binding_rank}, counted as {budget.rules.name} does\n", "dim"),
    )


def short_layout(layout: Layout) -> str:
    """``TP4``, ``TP8 PP2``, ``TP1 DP8 EP``."""
    parts = [f"TP{layout.tensor_parallel_size}"]
    parts += [f"PP{layout.pipeline_parallel_size}"] if layout.pipeline_parallel_size > 1 else []
    parts += [f"DP{layout.data_parallel_size}"] if layout.data_parallel_size > 1 else []
    return " ".join([*parts, "EP"] if layout.enable_expert_parallel else parts)


def _bars(budget: MemoryBudget) -> Table:
    """The GPU's memory from top to bottom, each part with its bar in one scale."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    start = 0
    for name, size in parts_of(budget):
        colour = _COLOURS.get(name, "bright_black")
        bar = _bar(start, size, budget.total_bytes)
        table.add_row(name, gib(size), percent(size / budget.total_bytes), Text(bar, style=colour))
        start += size
    table.add_row("of", gib(budget.total_bytes), "", Text("as the driver reports it", style="dim"))
    return table


def parts_of(budget: MemoryBudget) -> list[tuple[str, int]]:
    """The whole memory of a GPU in parts that sum to it."""
    inside = [
        ("weights", budget.weights_bytes),
        ("activations", budget.activation_bytes),
        ("overhead", budget.overhead_bytes),
        ("KV cache", budget.kv_bytes),
    ]
    outside = budget.total_bytes - sum(size for _, size in inside)
    return [*((name, size) for name, size in inside if size), ("left free", max(0, outside))]


def _bar(start: int, size: int, total: int) -> str:
    """A bar that begins where the one above ended."""
    begin = round(start / total * _BAR)
    length = size / total * _BAR
    whole, part = int(length), round((length - int(length)) * 8)
    return " " * begin + "█" * whole + (_EIGHTHS[part].strip() if part else "") or " " * begin + "▏"


def _facts(case: Case, budget: MemoryBudget) -> Iterator[tuple[str, str]]:
    yield "", ""
    yield "weights", ", ".join(f"{_word(part)} {gib(size)}" for part, size in _largest_first(budget.weights))
    yield "KV a token", "; ".join(_cache(cache) for cache in budget.caches)
    spread = (
        f", {number(budget.kv_bytes_per_token)} B over all GPUs" if case.scenario.layout.gpus_per_replica > 1 else ""
    )
    yield "", f"{number(budget.kv_bytes_per_token_per_rank)} B on each GPU{spread}"
    yield "pool", _pool(budget)
    yield "binds", _binding(budget)
    swap = swap_row(case)
    if swap is not None:
        yield "swap", _swap(swap)
    waste = waste_row(case)
    if waste is not None:
        yield (
            "waste",
            f"blocks of {budget.block_size}: {percent(waste['paged_fraction'])} of allocated KV memory holds no token; "
            f"reserving {number(budget.max_model_len)} tokens a request: {percent(waste['contiguous_fraction'])}",
        )


def _swap(row: dict[str, Any]) -> str:
    alone, beside = (_from(row[f"crossover_tokens{when}"]) for when in ("", "_in_full_batch"))
    return (
        f"room for {number(row['room_tokens'])} tokens in the host; copying a cache out and back is quicker than "
        f"computing it again {alone} if nothing else runs, {beside} beside a full batch"
    )


def _from(tokens: int | None) -> str:
    return "never" if tokens is None else "always" if tokens == 1 else f"from {number(tokens)} tokens on"


def _word(component: str) -> str:
    return (
        component.replace("_", " ").replace("lm head", "LM head").replace("mlp", "MLP").replace("rope", "rotary tables")
    )


def _largest_first(parts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(parts.items(), key=lambda part: -part[1])[:5]


def _cache(cache: LayerCache) -> str:
    layers = count(cache.layers, f"{'latent' if cache.kind == 'mla' else cache.kind} layer")
    if cache.kind == "linear":
        return f"{layers}: {number(cache.bytes_per_sequence)} B a sequence each, whatever its length"
    window = f", newest {number(cache.window)} tokens" if cache.window and cache.kind == "sliding" else ""
    return f"{layers} x {number(cache.bytes_per_token)} B{window}"


def _pool(budget: MemoryBudget) -> str:
    pool = f"{budget.num_gpu_blocks:,} blocks of {budget.block_size} tokens = {budget.capacity_tokens:,} tokens"
    if budget.layout.data_parallel_size > 1:
        pool += f", on each of {budget.layout.data_parallel_size} data-parallel ranks"
    if len(budget.pool.groups) > 1:
        pool += (
            f" at {budget.max_model_len:,} tokens a request; {budget.pool_blocks:,} blocks are shared by "
            f"{len(budget.pool.groups)} groups of layers ({budget.capacity_tokens_all_layers:,} tokens if every layer "
            "kept all)"
        )
    return pool


def _binding(budget: MemoryBudget) -> str:
    spent = {
        "weights": budget.weights_bytes,
        "activations": budget.activation_bytes,
        "overhead": budget.overhead_bytes,
    }
    name = max(spent, key=lambda part: spent[part])
    share = percent(spent[name] / budget.usable_bytes)
    pool = percent(budget.kv_bytes / budget.usable_bytes)
    return f"{name} take {share} of the {gib(budget.usable_bytes)} in use; {pool} is left for KV"


def _concurrency(budget: MemoryBudget, lengths: tuple[int, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("tokens a request", justify="right")
    windowed = any(group.window for group in budget.pool.groups)
    table.add_column("fit in memory", justify="right")
    if windowed:
        table.add_column("while all prefill", justify="right")
    table.add_column("run at once", justify="right")
    table.add_column("limited by")
    for length in lengths:
        if length > budget.max_model_len:
            continue
        row = concurrency_row(budget, length)
        limit = "KV memory" if row["limited_by"] == "kv_memory" else f"max_num_seqs {budget.max_num_seqs}"
        prefilling = [f"{row['in_memory_while_prefilling']:,}"] if windowed else []
        table.add_row(f"{length:,}", f"{row['in_memory']:,}", *prefilling, f"{row['requests']:,}", limit)
    return table


def _print_several(asked: Asked, console: Console) -> None:
    console.print(Text(asked.name, style="bold"))
    shown = [length for length in asked.lengths if any(_fits(case, length) for case in asked.cases)]
    padding = 2 if console.width >= 90 else 1
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    table.add_column("", overflow="fold", min_width=12)
    for heading in ("weights\nGiB", "pool\nGiB", "KV B\n/token", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for length in shown:
        table.add_column(f"at\n{_short(length)}", justify="right", no_wrap=True)
    for case in asked.cases:
        table.add_row(*_row(case, shown))
    console.print(table)
    lengths = ", ".join(_short(length) for length in shown)
    console.print(
        Text(
            "weights, pool and bytes: of one GPU (the one with the fewest blocks); tokens: of the whole engine; "
            f"at {lengths}: requests of that many tokens that memory holds at once, over all GPUs of the engine",
            style="dim",
        )
    )
    for case in asked.cases:
        if case.refusal is not None:
            refusal = f"{case.label}: {case.refusal.problem}\n  remedy: {case.refusal.remedy}"
            console.print(Text.assemble(("! ", "bold yellow"), refusal))


def _row(case: Case, lengths: list[int]) -> list[str]:
    budget = case.budget
    if budget is None:
        return [
            case.label,
            "does not fit" if isinstance(case.refusal, DoesNotFit) else "impossible",
            "",
            "",
            "",
            *("" for _ in lengths),
        ]
    tokens = budget.capacity_tokens * budget.layout.data_parallel_size
    held = [f"{concurrency_row(budget, length)['in_memory']:,}" if _fits(case, length) else "-" for length in lengths]
    per_token = f"{budget.kv_bytes_per_token_per_rank:,}"
    return [case.label, _gib(budget.weights_bytes), _gib(budget.kv_bytes), per_token, _rounded(tokens), *held]


def _gib(size: int) -> str:
    return gib(size).removesuffix(" GiB")


def _rounded(tokens: int) -> str:
    """Three digits are enough beside exact bytes."""
    if tokens >= 999_500:
        return f"{tokens / 1e6:.3g}M"
    return f"{tokens / 1e3:.3g}K" if tokens >= 1000 else f"{tokens}"


def _fits(case: Case, length: int) -> bool:
    return case.budget is not None and length <= case.budget.max_model_len


def _short(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"
