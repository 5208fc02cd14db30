"""Rotary tables: how many elements the engine keeps for each kind of scaling, and bad values of it."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import InputError
from sim.models.huggingface import architecture_from_config
from sim.models.loader import catalog_entry, load_model

LLAMA = catalog_entry("Llama-3.1-8B")["config"]


def _elements(**changed: Any) -> int:
    return architecture_from_config({**LLAMA, **changed}, "model").rope_cache_elements


def test_a_scaling_that_is_inside_the_positions_leaves_one_row_a_position() -> None:
    assert _elements() == 131_072 * 128


def test_linear_scaling_stretches_its_table() -> None:
    assert _elements(rope_scaling={"rope_type": "linear", "factor": 4.0}) == 4 * 131_072 * 128


def test_yarn_spans_the_stretched_original_length() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    assert _elements(max_position_embeddings=40_960, rope_scaling=yarn) == 131_072 * 128


def test_longrope_keeps_a_short_and_a_long_table() -> None:
    scaling = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert _elements(rope_scaling=scaling) == (131_072 + 4096) * 128


def test_gemma_3_keeps_a_stretched_table_and_one_for_windows() -> None:
    assert load_model("gemma-3-27b-it").rope_cache_elements == (8 + 1) * 131_072 * 128


def test_gemma_4_keeps_a_table_for_each_width_of_head() -> None:
    assert load_model("gemma-4-31B-it").rope_cache_elements == 262_144 * (256 + 512)


def test_a_part_of_the_head_that_rotates_is_the_width_of_the_table() -> None:
    scaling = {"rope_type": "default", "partial_rotary_factor": 0.25}
    assert _elements(rope_scaling=None, rope_parameters=scaling) == 131_072 * 32


@pytest.mark.parametrize("factor", ["8", True, 0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_no_number_above_zero_is_refused(factor: Any) -> None:
    with pytest.raises(InputError) as caught:
        _elements(rope_scaling={"rope_type": "linear", "factor": factor})
    assert caught.value.field == "model.config.rope_scaling.factor"


@pytest.mark.parametrize("positions", [float("nan"), float("inf"), 1.5, "many"])
def test_positions_that_are_no_whole_number_are_refused(positions: Any) -> None:
    with pytest.raises(InputError, match="max_position_embeddings"):
        _elements(max_position_embeddings=positions)
