"""The generator of random ONNX models: what it draws, and a slice of it in every way."""

import pytest
from onnx import defs

from tests.fuzz_onnx import outcome
from tests.onnx_models.cases import HIGHEST, drawn_case
from tests.onnx_models.registry import RECIPES

NOT_DRAWN = {"Constant", "ImageDecoder"}
"""What other recipes make on their way, and what needs pictures."""


def test_every_operator_up_to_the_highest_opset_is_drawn() -> None:
    known = {s.name for s in defs.get_all_schemas_with_history() if not s.domain and s.since_version <= HIGHEST}
    assert known - NOT_DRAWN == set(RECIPES)


def test_a_seed_is_one_model() -> None:
    first, second = drawn_case(7), drawn_case(7)
    assert first is not None
    assert second is not None
    assert first.model == second.model


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_slice(first: int) -> None:
    for seed in range(first, first + 10):
        found = outcome(seed)
        assert not found.findings, (seed, found)
