"""Whatever engines, layouts, memories, routers and failures go together: jumps and single steps serve the same."""

from __future__ import annotations

import pytest
from random_fleets import disagreement, document_of

from sim.errors import InputError


@pytest.mark.parametrize("seed", range(48))
def test_a_random_fleet_serves_alike_by_jumps_and_by_steps(seed: int) -> None:
    document = document_of(seed)
    try:
        assert not disagreement(document)
    except InputError as refusal:
        pytest.skip(str(refusal))
