"""Operators on arguments that lie otherwise in memory: a few of what `operator_run --layouts` tries."""

import torch

from tests.frontends.torch.layouts import LAYOUTS, WRITABLE, layout_outcomes


def test_results_and_arguments_are_those_of_eager_pytorch() -> None:
    outcomes = list(layout_outcomes("cumsum", 0, executor="eager"))
    assert [each for each in outcomes if isinstance(each, str)] == []
    assert ("native", ()) in outcomes


def test_layouts_are_what_they_are_called() -> None:
    x = torch.arange(6.0).view(2, 3)
    strides = {name: lie(x).stride() for name, lie in LAYOUTS.items()}
    assert strides == {
        "transposed": (1, 2), "stepped": (6, 2), "offset": (3, 1), "expanded": (0, 1), "overlapping": (1, 1)
    }  # fmt: skip
    assert all(torch.equal(lie(x), x) for lie in WRITABLE.values())
    assert LAYOUTS["offset"](x).storage_offset() == 3
