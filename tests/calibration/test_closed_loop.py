"""A real decoder behind the simulator's scheduler, where torch is installed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'servecast[calibrate]'")

from calibration.bench.device import open_device  # noqa: E402
from calibration.closed_loop.check import SMALL, STEP_TARGET, THROUGHPUT_TARGET, check_end_to_end  # noqa: E402
from calibration.closed_loop.decoder import Chunk, Decoder  # noqa: E402
from calibration.closed_loop.loop import ClosedLoop, CoreClock  # noqa: E402
from calibration.closed_loop.model import architecture  # noqa: E402
from calibration.engine_runs.fit import EngineFit  # noqa: E402
from calibration.engine_runs.predict import replay_batches  # noqa: E402
from calibration.engine_runs.timer import MeasuredStepTimer  # noqa: E402
from hardware_profiles.figures import Residual  # noqa: E402
from sim.cluster.fleet import ClientPath  # noqa: E402
from sim.engine.config import EngineConfig  # noqa: E402
from sim.errors import InputError  # noqa: E402
from sim.workload import Workload  # noqa: E402

CONFIG = EngineConfig(
    num_gpu_blocks=12,
    block_size=16,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    max_model_len=256,
    enable_prefix_caching=False,
    async_scheduling=False,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["gqa-small", "mla-small"])
def test_chunks_and_single_tokens_give_the_logits_of_the_whole(name: str) -> None:
    decoder = Decoder(torch, architecture(name), 3, 64)
    logits: list[object] = []
    decoder.head = _Recorder(decoder.head, logits)
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, 8192, 30)]
    decoder.step([Chunk(0, tokens, 0, True)])
    decoder.step([Chunk(1, tokens[:19], 0, False)])
    decoder.step([Chunk(1, tokens[19:], 19, True)])
    decoder.step([Chunk(2, tokens[:29], 0, False)])
    decoder.step([Chunk(2, tokens[29:], 29, True)])
    whole, chunked, single = (torch.as_tensor(row).float() for row in logits)
    for other in (chunked, single):
        assert torch.nn.functional.cosine_similarity(whole, other, dim=-1).min() > 0.999


class _Recorder(torch.Tensor):
    """The LM head, noting what it gives."""

    @staticmethod
    def __new__(cls, weight: object, seen: list[object]) -> _Recorder:
        made = torch.Tensor._make_subclass(cls, weight)
        made.seen = seen
        return made

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*arguments, **(keywords or {}))
        for argument in arguments:
            if isinstance(argument, cls):
                argument.seen.append(found)
        return found


def test_a_served_workload_has_the_batches_of_the_simulator_and_its_preemptions() -> None:
    """Blocks are short, so that requests are preempted; the log must still equal a replay step by step."""
    decoder = Decoder(torch, architecture("gqa-small"), CONFIG.max_num_seqs, CONFIG.max_model_len)
    workload = Workload(np.array([0.0, 0.0, 0.0, 0.05]), np.array([60, 50, 40, 20]), np.array([30, 30, 30, 10]))
    run = ClosedLoop(decoder, CONFIG, workload, CoreClock).run("short of blocks")
    assert sum(step.ntok.count(1) for step in run.steps) >= 90
    restarts = sum(1 for step in run.steps for tokens, before in zip(step.ntok, step.ctx, strict=True) if not before)
    assert restarts > len(workload)  # somebody began again
    timer = MeasuredStepTimer(1.0, (1,), (0.0,), 0.0, 0.0, 0.0)
    fit = EngineFit(timer, ClientPath(), Residual(median=0, p90=0, worst=0, rows=1, held_out=False))
    agreement = replay_batches(fit, run)
    assert agreement.equal == agreement.steps


def test_small_end_to_end_check() -> None:
    """Kernels measured, profile fitted, loads predicted and served; core time, so that a busy machine does not matter.

    The small check has a few seconds of microbenchmarks and a model that partly fits a cache, so its bounds are wider
    than the targets of the full one (`servecast calibrate check --end-to-end`).
    """
    device = open_device("cpu", 1, cpu_time=True)
    (found,) = check_end_to_end(device, ["gqa-small"], SMALL)
    assert {load.load for load in found.loads} == {"moderate", "saturated"}
    for load in found.loads:
        assert load.step_time_median <= 2 * STEP_TARGET
        assert abs(load.errors["output_tokens_per_s"]) <= 2 * THROUGHPUT_TARGET


def test_an_unknown_model_is_refused() -> None:
    device = open_device("cpu", 1, cpu_time=True)
    with pytest.raises(InputError, match="did you mean 'gqa'"):
        check_end_to_end(device, ["gqq"], SMALL)
