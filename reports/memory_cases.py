"""What `servecast memory` is asked about: one scenario, or variants of one side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from hardware_profiles import HardwareProfile, load_hardware
from reports.text import called
from sim.errors import InputError
from sim.models.architecture import Architecture
from sim.models.huggingface import architecture_from_config
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import catalog_entry, load_model
from sim.models.memory import MemoryBudget, memory_budget
from sim.models.quantization import resolve_weight_format
from sim.scenario import Scenario
from sim.scenario.document import load_document, parse_yaml
from sim.scenario.drafts import draft_of
from sim.scenario.pools import pools_of
from sim.schema import StrictModel

# A budget needs no workload; this one stands in where the document has none.
_NO_WORKLOAD: Final[dict[str, Any]] = {
    "num_requests": 1,
    "arrivals": {"process": "constant", "rate_per_s": 1.0},
    "prompt_tokens": 1,
    "output_tokens": 1,
}
_MOST_VARIANTS: Final = 12


class Variant(StrictModel):
    """One line of a comparison.

    Attributes:
        name: its label.
        set: keys of the scenario to change, ``{key.path: value}``.
        config: keys of the model's ``config.json`` to change: a what-if model.
    """

    name: Annotated[str, Field(min_length=1, max_length=80)]
    set: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)


class Comparison(StrictModel):
    """A document that `servecast memory` draws: a scenario (the workload may be left out) and its variants.

    Attributes:
        lengths: context lengths in tokens at which concurrency is tabulated.
        plot: file to draw to, in the working directory.
    """

    name: str = "comparison"
    scenario: dict[str, Any]
    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=_MOST_VARIANTS)]
    lengths: tuple[Annotated[int, Field(ge=1)], ...] = ()
    plot: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A budget, or why there is none."""

    label: str
    scenario: Scenario
    hardware: HardwareProfile
    budget: MemoryBudget | None
    refusal: InputError | None
    has_workload: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything a view shows."""

    name: str
    cases: tuple[Case, ...]
    lengths: tuple[int, ...]
    plot: Path | None


def read_asked(
    paths: Sequence[Path],
    overrides: Sequence[str],
    compare: Sequence[str],
    lengths: Sequence[int],
    engine: str | None,
) -> Asked:
    """Read documents and flags.

    Args:
        paths: scenarios, or one comparison document.
        overrides: ``key.path=value`` for all.
        compare: ``key.path=a,b,c``; several make all combinations.
        lengths: context lengths; empty = the document's, or round numbers up to the longest request.
        engine: whose memory rules count (``vllm==0.23.0``), None = the scenario's preset.

    Raises:
        InputError: anything malformed. A layout that is too small or impossible is a `Case` with a refusal.
    """
    documents = [(path, load_document(path.expanduser())) for path in paths]
    name, plot, given = ", ".join(path.stem for path in paths), None, tuple(lengths)
    comparison = next((path for path, document in documents if "variants" in document), None)
    if comparison is not None:
        if len(documents) > 1 or compare:
            raise InputError(str(comparison), "is a comparison already", "give it alone, without --compare")
        path, document = documents[0]
        asked = Comparison.parse({"name": path.stem, **document}, str(path))
        name, plot, given = asked.name, Path(asked.plot) if asked.plot else None, given or asked.lengths
        several = [_variant(path, asked.scenario, variant, overrides, engine) for variant in asked.variants]
    else:
        named = len(documents) > 1 or not compare
        several = [
            _cases(path, document, [*overrides, *edits], _label(path, document, named, label), engine, {})
            for path, document in documents
            for label, edits in _combinations(compare)
        ]
    cases = list(chain.from_iterable(several))
    return Asked(name, tuple(cases), given or _default_lengths(cases), plot)


def _label(path: Path, document: dict[str, Any], named: bool, varied: str) -> str:
    name = str(document.get("name") or path.stem)
    return ", ".join(filter(None, (name if named else "", varied)))


def _combinations(compare: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(label, overrides) of every combination of ``--compare`` values; one without any where there is no flag."""
    axes = []
    for flag in compare:
        key, separator, values = flag.partition("=")
        if not separator or not key or not values.strip(","):
            raise InputError(f"--compare {flag}", "is not of the form key=a,b,c", "e.g. engine.kv_cache_dtype=bf16,fp8")
        chosen = parse_yaml(f"[{values.strip(',')}]", f"--compare {key}")
        axes.append([(called(key, value), f"{key}={_as_yaml(value)}") for value in chosen])
    combined = [(", ".join(label for label, _ in point), [edit for _, edit in point]) for point in product(*axes)]
    if len(combined) > _MOST_VARIANTS:
        raise InputError("--compare", f"{len(combined)} combinations", f"compare at most {_MOST_VARIANTS} at once")
    return combined


def _variant(
    path: Path, base: dict[str, Any], variant: Variant, overrides: Iterable[str], engine: str | None
) -> list[Case]:
    edits = [*overrides, *(f"{key}={_as_yaml(value)}" for key, value in variant.set.items())]
    return _cases(path, base, edits, variant.name, engine, variant.config)


def _as_yaml(value: Any) -> str:
    """JSON is YAML; NaN and infinities become texts, which no key takes for a number."""
    return json.dumps(value)


def _cases(
    path: Path, document: dict[str, Any], edits: list[str], label: str, engine: str | None, config: dict[str, Any]
) -> list[Case]:
    """One, or with prefill and decode apart one a pool."""
    whole = {"name": path.stem, "workload": _NO_WORKLOAD, **document}
    scenario = Scenario.from_dict(whole, path.parent).with_overrides(edits)
    arch = _architecture(scenario.model, config)
    pools = pools_of(scenario)
    return [
        _case(pool, arch, f"{label}, {name}" if len(pools) > 1 else label, engine, "workload" in document)
        for name, pool in pools.items()
    ]


def _case(scenario: Scenario, arch: Architecture, label: str, engine: str | None, has_workload: bool) -> Case:
    hardware = load_hardware(scenario.hardware)
    try:
        budget: MemoryBudget | None = _budget(scenario, arch, hardware, engine)
        refusal = None
    except InputError as error:
        if not error.field.startswith("layout"):  # no variant of the same question, but a word that nobody knows
            raise
        budget, refusal = None, error
    return Case(label, scenario, hardware, budget, refusal, has_workload)


def _architecture(model: str, config: dict[str, Any]) -> Architecture:
    if not config:
        return load_model(model)
    return architecture_from_config({**catalog_entry(model)["config"], **config}, f"{model} (changed)")


def _budget(scenario: Scenario, arch: Architecture, hardware: HardwareProfile, engine: str | None) -> MemoryBudget:
    spec = scenario.engine
    arch, weights = spec.retained(arch), resolve_weight_format(arch, spec.quantization)
    return memory_budget(
        arch,
        hardware.memory_visible_bytes,
        scenario.layout,
        weight_format=weights,
        kv_format=resolve_kv_format(arch, spec.kv_cache_dtype.model_dump()),
        block_size=spec.block_size,
        gpu_memory_utilization=spec.gpu_memory_utilization,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len or arch.max_position_embeddings,
        num_gpu_blocks_override=spec.num_gpu_blocks_override,
        engine=engine or spec.preset,
        links=hardware.links.kind,
        draft=draft_of(spec.speculative, arch, weights, scenario.layout),
    )


def _default_lengths(cases: Sequence[Case]) -> tuple[int, ...]:
    """1K, 4K, 8K, 32K and 128K, as far as the longest request goes, and that request itself."""
    longest = max((case.budget.max_model_len for case in cases if case.budget), default=8192)
    round_ones = [length for length in (1024, 4096, 8192, 32_768, 131_072) if length <= longest]
    return tuple(sorted({*round_ones, longest}))
