from __future__ import annotations

from pathlib import Path

import pytest

import sim
from sim import InputError
from sim.planner.record import Record, Refusal
from sim.planner.store import Store


def refused(key: str, status: str = "refused", version: str = sim.__version__) -> Record:
    refusal = Refusal(field="layout", problem="too small", remedy="grow")
    return Record.model_validate({"key": key, "servecast_version": version, "status": status, "refusal": refusal})


def test_what_one_store_keeps_another_finds(tmp_path: Path) -> None:
    Store(tmp_path / "points").put(refused("a"))
    assert Store(tmp_path / "points").get("a") == refused("a")
    assert [path.name for path in (tmp_path / "points").iterdir()] == ["a.json"]


def test_a_store_without_a_folder_keeps_for_as_long_as_it_lives() -> None:
    store = Store(None)
    store.put(refused("a"))
    assert store.get("a") == refused("a")
    assert Store(None).get("a") is None


def test_half_a_file_counts_as_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(refused("a"))
    whole = (tmp_path / "a.json").read_text()
    for part in ("", whole[: len(whole) // 2], whole.replace('"key":"a"', '"key":"b"')):
        (tmp_path / "a.json").write_text(part)
        assert Store(tmp_path).get("a") is None


def test_the_figures_of_another_version_are_not_reused(tmp_path: Path) -> None:
    Store(tmp_path).put(refused("a", version="0.0.1"))
    assert Store(tmp_path).get("a") is None


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(refused("a", status="failed"))
    assert store.get("a") is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_stopped_early_does_not_stand_for_a_whole_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(refused("a", status="stopped"))
    assert store.get("a") is not None
    assert store.get("a", whole=True) is None


def test_a_folder_that_cannot_be_written_is_bad_input() -> None:
    with pytest.raises(InputError, match="cannot be written"):
        Store(Path("/proc/points")).put(refused("a"))
