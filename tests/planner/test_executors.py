"""Every executor gives each result once, loses none when a worker dies, and agrees with doing the work right here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reports.sweep_outputs import parquet_of
from sim import InputError, Scenario
from sim.planner import sweep
from sim.planner.clusters import RayCluster, check_address
from sim.planner.dask_cluster import DaskCluster
from sim.planner.executors import each_once, executor_of

CLUSTERS = {"dask": "distributed", "ray": "ray"}
GRID = {"seed": [0, 1, 2, 3, 4], "engine.max_num_seqs": [4, 64]}


def cluster(name: str) -> Any:
    packages = ("joblib", CLUSTERS[name])
    absent = [package for package in packages if find_spec(package) is None]
    return pytest.param(name, marks=pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed"))


EVERYWHERE = ["local", *map(cluster, CLUSTERS)]


@pytest.fixture(scope="module")
def ray_head() -> Iterator[str]:
    """The address of a Ray instance that the first executor starts and the others find; starting one takes long."""
    pytest.importorskip("ray", reason="ray not installed")
    import ray

    with executor_of("ray", workers=2) as executor:
        assert list(executor.stream(double, [(0, 1)])) == [(0, 2)]
        yield ray.get_runtime_context().gcs_address
    assert not ray.is_initialized()


@pytest.fixture(autouse=True)
def _started(request: pytest.FixtureRequest) -> None:
    if "ray" in request.node.name:
        request.getfixturevalue("ray_head")


def double(item: int) -> int:
    return 2 * item


def die_once(item: tuple[int, str]) -> int:
    """Kills its worker the first time it sees an item with a file to leave."""
    number, path = item
    if path and not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    """Kills its worker whenever it sees 3."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def given_up(item: Any, error: Exception) -> int:
    return -1


@pytest.mark.parametrize("name", EVERYWHERE)
def test_each_result_comes_once(name: str) -> None:
    with executor_of(name, workers=2) as executor:
        for _ in range(2):  # a second round finds the workers of the first
            found = list(each_once(executor, double, range(20), given_up))
            assert sorted(found) == [(index, 2 * index) for index in range(20)]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_points_of_a_lost_worker_are_done_again_and_none_twice(name: str, tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "died") if number == 5 else "") for number in range(12)]
    with executor_of(name, workers=2) as executor:
        found = list(each_once(executor, die_once, items, given_up))
    assert (tmp_path / "died").exists()
    assert sorted(found) == [(number, number) for number in range(12)]


@pytest.mark.parametrize("name", ["local", cluster("dask")])
def test_a_point_that_kills_every_worker_is_given_up_and_the_others_are_not(name: str) -> None:
    with executor_of(name, workers=2) as executor:
        found = list(each_once(executor, die, range(6), given_up))
    assert sorted(found) == [(number, -1 if number == 3 else number) for number in range(6)]


@pytest.mark.parametrize("name", [cluster("dask"), cluster("ray")])
def test_a_cluster_sweeps_to_the_same_bytes(name: str, small: Scenario, tmp_path: Path) -> None:
    here = sweep(small, GRID, workers=1)
    there = sweep(small, GRID, executor=name, workers=2, store=tmp_path)
    assert parquet_of(there) == parquet_of(here)
    assert len(list((tmp_path / "points").iterdir())) == 10
    assert sweep(small, GRID, store=tmp_path, workers=1).reused == 10


@pytest.mark.skipif(find_spec("distributed") is None, reason="distributed not installed")
def test_a_running_scheduler_is_used_by_its_address(small: Scenario) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as running:
        result = sweep(small, {"seed": [0, 1]}, executor="dask", address=running.scheduler_address)
    assert result.counts == {"done": 2}


def test_a_running_ray_head_is_used_by_its_address(ray_head: str, small: Scenario, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(small.to_yaml())
    asked = ["sweep", "small.yaml", "--vary", "seed=0,1", "--executor", "ray", "--address", ray_head, "--out", "here"]
    done = subprocess.run(
        [sys.executable, "-m", "cli", *asked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "here" / "points").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "dusk"}, "did you mean 'dask'"),
        ({"name": "local", "workers": 0}, "at least 1"),
        ({"name": "local", "address": "tcp://host:1"}, "given for local processes"),
    ],
)
def test_what_is_no_executor_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        executor_of(**arguments)


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.planner.clusters.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs joblib and ray\n.*pip install 'servecast\[cluster\]'"):
        executor_of("ray")


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "{scheme}://127.0.0.1:{port}", "{scheme}://localhost:{port}"])
@pytest.mark.parametrize("scheme", ["tcp", "client"])
def test_an_address_where_nobody_listens_is_told_within_seconds(scheme: str, address: str) -> None:
    ports = DaskCluster.ports if scheme == "tcp" else RayCluster.ports
    with socket.socket() as free:  # bound and not listening: nobody else gets the port
        free.bind(("127.0.0.1", 0))
        where = address.format(port=free.getsockname()[1], scheme={"client": "ray"}.get(scheme, scheme))
        begin = time.monotonic()
        with pytest.raises(InputError, match="nothing answers at") as told:
            check_address(where, ports)
    assert told.value.field == "--address"
    assert time.monotonic() - begin < 10


def test_an_address_is_tried_before_the_cluster_is() -> None:
    class Asked(RayCluster):
        packages = ()

        def start(self) -> None:
            raise AssertionError("not reached")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match="nothing answers"):
            next(Asked(1, f"127.0.0.1:{free.getsockname()[1]}").stream(double, [(0, 1)]))


def test_an_address_where_somebody_listens_is_left_to_the_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"tcp://127.0.0.1:{server.getsockname()[1]}", DaskCluster.ports)
    check_address("auto", RayCluster.ports)
    check_address("inproc://192.168.1.5/1/1", DaskCluster.ports)


@pytest.mark.parametrize(("address", "problem"), [("tcp://:8786", "names no host"), ("tcp://host:x", "cannot read")])
def test_an_address_that_is_none_is_refused(address: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_address(address, DaskCluster.ports)


SCRIPT = """
from sim import Scenario
from sim.planner import sweep
{policy}
scenario = Scenario.from_dict({scenario})
{guard}
    print(list(sweep(scenario, {{"seed": [0, 1, 2]}}, workers=2).table["status"]))
"""
POLICY = """
from sim.engine.policies import add_policy
from sim.engine.vllm import VllmScheduler
class Mine(VllmScheduler): pass
add_policy("mine", Mine)
"""


@pytest.mark.parametrize(("policy", "guard"), [("", "if True:"), (POLICY, 'if __name__ == "__main__":')])
def test_a_plain_script_sweeps_and_is_not_run_again_by_its_workers(policy: str, guard: str, tmp_path: Path) -> None:
    scenario = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"preset": "mine" if policy else "vllm"},
        "workload": {"num_requests": 5, "arrivals": {"process": "poisson", "rate_per_s": 5.0}, "prompt_tokens": 20,
                     "output_tokens": 5},
    }  # fmt: skip
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(policy=policy, scenario=scenario, guard=guard))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("['done', 'done', 'done']\n", "")
