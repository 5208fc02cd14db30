"""The plan as a whole: one answer whoever computes it, kept work, and reasons where there is no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardware_profiles import load_hardware
from sim import InputError, Scenario, simulate
from sim.planner import Options, PlanResult, plan
from sim.planner import sweeping as module

QUICK: dict[str, Any] = {
    "name": "quick",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "h100-sxm",
    "engine": {"max_model_len": 8192},
    "workload": {
        "num_requests": 200,
        "arrivals": {"process": "poisson", "rate_per_s": 12.0},
        "prompt_tokens": {"distribution": "lognormal", "mean": 1200, "cv": 0.6, "max": 6000},
        "output_tokens": {"distribution": "lognormal", "mean": 150, "cv": 0.5, "max": 600},
    },
    "slo": {"ttft_p99_s": 0.8, "tpot_p99_s": 0.03},
}
SPACE = Options(max_gpus=4, tensor_parallel=(1, 2), max_num_seqs=(64, 256), max_num_batched_tokens=(2048, 8192))


def quick(**changes: Any) -> Scenario:
    return Scenario.from_dict(QUICK | changes)


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return plan(quick(), SPACE, workers=1)


def test_the_winner_keeps_the_promise_and_simulating_it_gives_the_figures_of_the_plan(result: PlanResult) -> None:
    winner = result.plan.winner
    assert winner is not None
    assert result.winner is not None
    summary = simulate(result.winner).summary
    assert all(summary.slo.met.values())
    assert summary.ttft_s.p99 == pytest.approx(winner.promise["ttft_p99_s"].value_s, rel=1e-12)
    assert summary.cost.usd_per_hour == pytest.approx(winner.usd_per_hour)
    assert summary.cost.usd_per_million_output_tokens == pytest.approx(winner.usd_per_million_output_tokens)


@pytest.mark.parametrize(
    ("asked", "hardware", "error"),
    [(None, ("h100-sxm",), 0.056), (None, ("h100-sxm", "h200-sxm"), 0.12), (0.2, ("h100-sxm",), 0.2)],
)
def test_ties_reach_as_far_as_the_band_of_a_run(asked: float | None, hardware: tuple[str, ...], error: float) -> None:
    """The p90 error of the devices' own profiles; of several, the report names the largest."""
    assert max(load_hardware(name).step_error.p90 for name in hardware) == (error if asked is None else 0.056)
    few = Options(
        max_gpus=1, tensor_parallel=(1,), max_num_seqs=(256,), hardware=hardware, error_band=asked, disaggregation=False
    )
    assert plan(quick(), few, workers=1, what_ifs=False).plan.question.error_band == error


def test_rows_are_sorted_and_say_what_limits_them(result: PlanResult) -> None:
    rows = result.plan.rows
    kept = [row for row in rows if row.keeps]
    assert [row.cost for row in kept] == sorted(row.cost for row in kept)
    assert rows[0] == result.plan.winner
    for row in kept:
        assert row.limit
        assert row.most_load is not None
        assert row.most_load >= result.plan.question.load
        assert row.promise["ttft_p99_s"].low_s is not None
        assert row.promise["ttft_p99_s"].low_s <= row.promise["ttft_p99_s"].value_s


def test_just_below_its_highest_load_the_winner_holds_and_well_above_it_does_not(result: PlanResult) -> None:
    winner, scenario = result.plan.winner, result.winner
    assert winner is not None
    assert winner.most_load is not None
    assert scenario is not None
    factor = winner.most_load / result.plan.question.load
    met = []
    for times in (factor, 1.4 * factor):
        requests = round(times * 1000)
        changed = [f"workload.arrivals.rate_per_s={12 * times}", f"workload.num_requests={requests}"]
        summary = simulate(scenario.with_overrides(changed)).summary
        met.append(all(summary.slo.met.values()) and not summary.load.overloaded)
    assert met == [True, False]


def test_one_worker_or_two_and_a_second_time_give_the_same_plan(result: PlanResult, tmp_path: Path) -> None:
    for workers in (2, 1):
        again = plan(quick(), SPACE, workers=workers, store=tmp_path)
        assert again.plan.to_json() == result.plan.to_json()


def test_kept_points_are_not_run_again(result: PlanResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    measure = module.measure

    class Enough(KeyboardInterrupt):
        pass

    def counted(job: Any) -> Any:
        if len(runs) == 20:
            raise Enough
        runs.append(job.name)
        return measure(job)

    monkeypatch.setattr(module, "measure", counted)
    with pytest.raises(Enough):
        plan(quick(), SPACE, workers=1, store=tmp_path)
    assert len(list((tmp_path / "points").iterdir())) == 20
    monkeypatch.setattr(module, "measure", lambda job: runs.append(job.name) or measure(job))
    again = plan(quick(), SPACE, workers=1, store=tmp_path)
    assert len(runs) == len(set(runs)) == again.plan.counts.simulated
    assert again.plan.to_json() == result.plan.to_json()


def test_another_seed_is_another_plan(result: PlanResult) -> None:
    other = plan(quick(seed=1), SPACE, workers=1, what_ifs=False)
    assert other.plan.winner is not None
    assert result.plan.winner is not None
    assert other.plan.winner.promise != result.plan.winner.promise


def test_tables_hold_rows_runs_and_fronts(result: PlanResult) -> None:
    assert len(result.table) == len(result.plan.rows)
    assert len(result.runs) == result.plan.counts.simulated
    assert set(result.fronts["front"]) == {"throughput", "cost"}
    front = result.fronts[(result.fronts["front"] == "throughput") & result.fronts["on_front"]]
    by_speed = front.sort_values("output_tokens_per_s_per_user")["output_tokens_per_s_per_gpu"]
    assert by_speed.is_monotonic_decreasing


def test_what_ifs_answer_in_the_right_direction(result: PlanResult) -> None:
    answers = {one.question: one for one in result.plan.what_ifs}
    winner = result.plan.winner
    assert winner is not None
    less, more = answers["half the traffic"].cost, answers["twice the traffic"].cost
    assert less is not None
    assert less <= winner.cost
    assert more is None or more >= winner.cost
    assert {"prompts twice as long", "answers half as long", "half of every prompt shared"} <= set(answers)


def test_a_price_changes_the_cost_and_not_the_search(result: PlanResult) -> None:
    dear = plan(
        quick(), Options(**{**vars_of(SPACE), "usd_per_gpu_hour": {"h100-sxm": 30.0}}), workers=1, what_ifs=False
    )
    assert dear.plan.winner is not None
    assert result.plan.winner is not None
    assert dear.plan.winner.deployment == result.plan.winner.deployment
    assert dear.plan.winner.usd_per_hour == 30.0 * dear.plan.winner.deployment.gpus


def vars_of(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.__dataclass_fields__}


def test_cheaper_hardware_wins_and_the_price_at_which_it_would_not_is_told() -> None:
    options = Options(max_gpus=4, hardware=("h100-sxm", "l40s"), tensor_parallel=(1,), max_num_seqs=(256,),
                      max_num_batched_tokens=(8192,))  # fmt: skip
    found = plan(quick(slo={"ttft_p99_s": 5.0, "tpot_p99_s": 0.08}), options, workers=1, what_ifs=False).plan
    assert found.winner is not None
    names = [row.deployment.hardware for row in found.rows if row.keeps]
    assert len(names) == 2
    (other,) = found.prices
    assert other == names[1]
    dearer = next(row for row in found.rows if row.deployment.hardware == other)
    assert found.prices[other] * dearer.deployment.gpus == pytest.approx(found.winner.usd_per_hour)


def test_a_promise_that_no_step_can_keep_is_named_as_the_floor() -> None:
    found = plan(quick(slo={"tpot_p99_s": 0.001}), SPACE, workers=1).plan
    assert found.winner is None
    assert found.counts.searched == 0
    assert all("TPOT p99 is at least" in row.why for row in found.rows)
    (promise,) = [one for one in found.relaxations if one.what == "promise"]
    assert "instead of 1 ms" in promise.text


def test_too_small_a_budget_is_answered_with_the_budget_that_works() -> None:
    document = json.loads(json.dumps(QUICK))
    document["workload"]["arrivals"]["rate_per_s"] = 60.0
    options = Options(max_gpus=1, max_num_seqs=(256,), max_num_batched_tokens=(8192,))
    found = plan(Scenario.from_dict(document), options, workers=1).plan
    assert found.winner is None
    budget = next(one for one in found.relaxations if one.what == "budget")
    assert budget.deployment is not None
    enough = plan(
        Scenario.from_dict(document),
        Options(max_gpus=budget.deployment.gpus, max_num_seqs=(256,), max_num_batched_tokens=(8192,)),
        workers=1,
        what_ifs=False,
    ).plan
    assert enough.winner is not None
    traffic = next(one for one in found.relaxations if one.what == "traffic")
    assert "requests/s instead of 60" in traffic.text


def test_a_model_that_fits_nowhere_is_told_apart_and_smaller_formats_are_named() -> None:
    options = Options(max_gpus=1, max_num_seqs=(64,), max_num_batched_tokens=(2048,))
    found = plan(quick(model="meta-llama/Llama-3.1-70B-Instruct"), options, workers=1).plan
    assert found.winner is None
    assert "does not fit" in found.rows[0].why
    assert {"budget", "formats"} <= {one.what for one in found.relaxations}


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"slo": {}}, Options(), "promises nothing"),
        ({}, Options(max_gpus=0), "at least 1"),
        ({}, Options(tensor_parallel=(3,)), "--tensor-parallel, --pipeline-parallel: none of the sizes"),
        ({}, Options(max_usd_per_hour=-1.0), "more than 0"),
        ({}, Options(min_attainment=1.5), "a share"),
        ({}, Options(error_band=1.0), "a share"),
        ({}, Options(hardware=("h100-sx",)), "did you mean 'h100-sxm'"),
        ({}, Options(max_gpus=1, disaggregation=True, pipeline_parallel=(64,)), "ask for other sizes"),
        ({}, Options(quantization=("fp7",)), "unknown weight format"),
    ],
)
def test_questions_that_make_no_sense_are_refused(changes: dict[str, Any], options: Options, words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan(quick(**changes), options, workers=1)
