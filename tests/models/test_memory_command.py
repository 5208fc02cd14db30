"""`servecast memory`: what it prints, draws and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text
from typer.testing import CliRunner

from cli import app
from reports.memory_cases import read_asked
from reports.memory_lengths import quantiles
from reports.memory_plot import _draw
from reports.memory_report import concurrency_row
from reports.memory_view import parse_lengths
from sim.errors import InputError
from workloads.length_spec import EmpiricalLength, LognormalLength, NormalLength, UniformLength

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "llama-70b-h100.yaml"
COMPARISON = ROOT / "examples" / "gqa-vs-mla.yaml"


def _json(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["memory", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_json_adds_up_and_names_the_contract_s_keys() -> None:
    document = _json(EXAMPLE)
    memory, kv = document["memory"], document["kv"]
    spent = memory["weights_bytes"] + memory["activation_bytes"] + memory["overhead_bytes"] + memory["kv_bytes"]
    assert spent == memory["usable_bytes"] <= memory["total_bytes"]
    assert sum(memory["weights"].values()) == memory["weights_bytes"]
    assert sum(memory["overhead"].values()) == memory["overhead_bytes"]
    assert kv["bytes_per_token"] == 327_680
    assert kv["capacity_tokens"] == kv["num_gpu_blocks"] * kv["block_size"]


def test_memory_and_simulate_agree_on_the_blocks() -> None:
    from sim import Scenario
    from sim.assemble import assemble

    parts = assemble(Scenario.from_file(EXAMPLE))
    assert _json(EXAMPLE)["kv"]["num_gpu_blocks"] == parts.engine.num_gpu_blocks


def test_concurrency_is_cut_by_memory_or_by_max_num_seqs() -> None:
    rows = {row["tokens"]: row for row in _json(EXAMPLE, "--lengths", "1k,8k")["concurrency"]}
    assert (rows[1024]["requests"], rows[1024]["limited_by"]) == (256, "max_num_seqs")
    assert (rows[8192]["requests"], rows[8192]["limited_by"]) == (rows[8192]["in_memory"], "kv_memory")


def test_whole_sections_are_compared() -> None:
    ranks = "{tensor_parallel_size: 4, data_parallel_size: 2, enable_expert_parallel: true}"
    layouts = f"layout={{tensor_parallel_size: 8}},{ranks}"
    document = _json(ROOT / "examples/deepseek-v3-h200.yaml", "--compare", layouts)
    assert [each["label"] for each in document["variants"]] == ["TP8", "TP4 DP2 EP"]


def test_compare_gives_every_combination() -> None:
    document = _json(
        EXAMPLE, "--compare", "engine.kv_cache_dtype=bf16,fp8", "--compare", "layout.tensor_parallel_size=4,8"
    )
    variants = {variant["label"]: variant["kv"]["capacity_tokens"] for variant in document["variants"]}
    assert len(variants) == 4
    doubled = variants["fp8 cache, TP4"]
    assert doubled == pytest.approx(2 * variants["bf16 cache, TP4"], rel=1e-4)


def test_a_variant_that_does_not_fit_is_listed_with_its_remedy() -> None:
    document = _json(EXAMPLE, "--compare", "layout.tensor_parallel_size=1,4")
    refused, fits = document["variants"]
    assert (refused["fits"], fits["fits"]) == (False, True)
    assert "are missing" in refused["problem"]
    assert "tensor_parallel_size" in refused["remedy"]


def test_a_layout_that_no_model_of_these_shapes_has_is_impossible_not_too_small() -> None:
    shown = CliRunner().invoke(app, ["memory", str(EXAMPLE), "--compare", "layout.tensor_parallel_size=1,3,4"]).stdout
    assert shown.count("does not fit") == 2  # in the table and in the remedy of TP1
    assert "impossible" in shown


def test_a_variant_that_nobody_knows_is_refused_not_listed() -> None:
    result = CliRunner().invoke(app, ["memory", str(EXAMPLE), "--compare", "engine.kv_cache_dtype=bf16,fp99"])
    assert result.exit_code == 2
    assert "unknown format 'fp99'" in result.stderr


def test_a_single_model_that_does_not_fit_is_one_message_and_exit_code_2() -> None:
    result = CliRunner().invoke(app, ["memory", str(EXAMPLE), "--set", "layout.tensor_parallel_size=1"])
    assert result.exit_code == 2
    assert "does not fit" in result.stderr
    assert not result.stdout


def test_the_picture_of_gqa_against_mla_is_drawn(tmp_path: Path) -> None:
    target = tmp_path / "picture.png"
    result = CliRunner().invoke(app, ["memory", str(COMPARISON), "--plot", str(target)])
    assert result.exit_code == 0, result.output
    assert target.read_bytes().startswith(b"\x89PNG")
    assert "MLA, data-parallel" in result.stdout


def test_under_tensor_parallelism_a_latent_takes_more_than_one_kv_head_a_gpu() -> None:
    budgets = [case.budget for case in read_asked([COMPARISON], (), (), (), None).cases]
    mha, gqa, latent, own_users, _ = (budget for budget in budgets if budget)
    assert gqa.kv_bytes_per_token_per_rank < latent.kv_bytes_per_token_per_rank < mha.kv_bytes_per_token_per_rank
    assert own_users.concurrency(8192) > gqa.concurrency(8192) > latent.concurrency(8192) > mha.concurrency(8192)


def test_a_scenario_without_a_workload_is_enough(tmp_path: Path) -> None:
    scenario = tmp_path / "bare.yaml"
    scenario.write_text("model: Llama-3.1-8B\nhardware: h100-sxm\nengine: {max_model_len: 8192}\n")
    document = _json(scenario)
    assert document["fits"]
    assert document["waste"] is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--compare", "model"], "is not of the form"),
        (["--compare", "layout={a"], "not valid YAML"),
        (["--compare", "engine.gpu_memory_utilization=.nan"], "valid number"),
        (["--compare", "model=" + ",".join(["Llama-3.1-8B"] * 13)], "13 combinations"),
        (["--lengths", "many"], "is not a number of tokens"),
        (["--lengths", "0"], "is not a number of tokens"),
        (["--engine", "sglan"], "unknown engine"),
        (["--plot", "/nowhere/picture.png"], "cannot be written"),
        (["--plot", "picture.xyz"], "neither .png, .svg nor .pdf"),
        (["--set", "model=Lama-3.1-8B"], "did you mean"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(arguments: list[str], problem: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["memory", str(EXAMPLE), *arguments])
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_releases_count_differently() -> None:
    older, newer = (_json(EXAMPLE, "--engine", f"vllm=={version}") for version in ("0.15.1", "0.23.0"))
    assert older["memory"]["overhead"]["cuda_graphs_bytes"] == 0 < newer["memory"]["overhead"]["cuda_graphs_bytes"]


def test_the_answer_needs_neither_pandas_nor_matplotlib_nor_numpy() -> None:
    script = (
        "import sys; sys.argv = ['servecast', 'memory', sys.argv[1]]; import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = ('pandas', 'matplotlib', 'pyarrow', 'simpy', 'torch', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(EXAMPLE)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("text", ["1024,8192", "1k,8k", " 1K , 8192 "])
def test_lengths_are_read_in_tokens_or_k(text: str) -> None:
    assert parse_lengths(text) == (1024, 8192)


@pytest.mark.parametrize(
    ("spec", "mean"),
    [
        (UniformLength(min=100, max=300), 200),
        (NormalLength(mean=1000, std=100), 1000),
        (LognormalLength(mean=1000, cv=0.5), 1000),
        (EmpiricalLength(quantiles=((0, 100), (0.5, 200), (1, 1000))), 375),  # type: ignore[arg-type]
    ],
)
def test_quantiles_keep_the_mean(spec: Any, mean: float) -> None:
    values = quantiles(spec)
    assert sum(values) / len(values) == pytest.approx(mean, rel=0.02)


def test_a_comparison_is_given_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a comparison already"):
        read_asked([COMPARISON, EXAMPLE], (), (), (), None)


def test_the_plot_quotes_the_numbers_of_the_table() -> None:
    asked = read_asked([COMPARISON], (), (), (8192,), None)
    figure = _draw(asked, list(asked.cases))
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    for case in asked.cases:
        assert case.budget is not None
        assert f"{case.label}\n{concurrency_row(case.budget, 8192)['in_memory']:,} at 8K" in texts


def test_pools_of_prefill_and_decode_are_shown_side_by_side() -> None:
    changes = ["cluster.disaggregation.decode.layout.tensor_parallel_size=8"]
    asked = read_asked([ROOT / "examples" / "disaggregated.yaml"], changes, (), (), None)
    assert [case.label for case in asked.cases] == ["disaggregated, prefill", "disaggregated, decode"]
    prefill, decode = (case.budget for case in asked.cases)
    assert prefill is not None
    assert decode is not None
    assert 1.9 < prefill.weights_bytes / decode.weights_bytes < 2.1


SWAPPING = ("--set", "engine.preemption=auto", "--set", "engine.swap_space_gib=16")


def test_swap_says_from_which_context_copying_pays() -> None:
    """A slower link makes it pay later, and so does a batch beside which a prefill costs less."""
    fast, slow, hopeless = (
        _json(EXAMPLE, *SWAPPING, "--set", f"engine.host_link_gb_per_s={speed}")["swap"] for speed in (64, 2, 0.001)
    )
    assert fast["crossover_tokens"] == 1
    assert 1 < slow["crossover_tokens"] < slow["crossover_tokens_in_full_batch"]
    assert (hopeless["crossover_tokens"], hopeless["crossover_tokens_in_full_batch"]) == (None, None)
    assert fast["room_tokens"] == 16 * 2**30 // (327_680 // 4 * 16) * 16  # blocks of 16 tokens on four GPUs


def test_what_memory_says_of_swap_is_what_a_run_goes_by() -> None:
    from sim import Scenario
    from sim.assemble import assemble
    from sim.cost.shape import StepShape
    from sim.engine.tiers.choice import recompute_ticks

    edits = ["engine.preemption=auto", "engine.swap_space_gib=16", "engine.host_link_gb_per_s=2"]
    tokens = _json(EXAMPLE, *(part for edit in edits for part in ("--set", edit)))["swap"]["crossover_tokens"]
    parts = assemble(Scenario.from_file(EXAMPLE).with_overrides(edits).resolved())
    assert parts.engine.swap is not None

    def copying_pays(context: int) -> bool:
        recompute = recompute_ticks(parts.timer, StepShape(), context, parts.engine.max_num_batched_tokens)
        return 2 * -(-context // parts.engine.block_size) * parts.engine.swap.block_ticks < recompute

    assert copying_pays(tokens)
    assert not copying_pays(tokens - 1)


@pytest.mark.parametrize("more", [(), (*SWAPPING, "--set", "engine.preset=sglang")])
def test_without_swap_nothing_is_said_of_it(more: tuple[str, ...]) -> None:
    assert _json(EXAMPLE, *more)["swap"] is None


def test_swap_is_told_in_words() -> None:
    printed = CliRunner().invoke(app, ["memory", str(EXAMPLE), *SWAPPING]).output
    assert "copying a cache out and back is quicker" in " ".join(printed.split())
