"""The executor as it is asked for: what it says of options under which nothing is recorded."""

from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.ir.builder import Builder


def without_range(**options: Any) -> Any:
    made = Builder()
    graph = made.finish({"y": made.op("exp", made.input("x", "f32[B, T]"))})
    return capgraph.optimize(graph, executor="graph", **options)


@pytest.mark.parametrize("dynamic", [None, {"B": 8}])
def test_a_program_that_can_record_nothing_says_so_once(dynamic: Any, caplog: pytest.LogCaptureFixture) -> None:
    program = without_range(dynamic=dynamic)
    for _ in range(3):
        program.run({"x": np.ones((2, 3), np.float32)})
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("capgraph")]
    assert "no range is given for" in said
    assert "dynamic={" in said
    assert program.stats().counters.captures == 0
    with pytest.raises(capgraph.UnsupportedError, match="no range is given for"):
        without_range(dynamic=dynamic, strict=True)


@pytest.mark.parametrize("options", [{"dynamic": {"B": 2, "T": 3}}, {"capture": {"beyond": "exact"}}, {"mode": "none"}])
def test_what_can_record_or_shall_not_is_silent(options: Any, caplog: pytest.LogCaptureFixture) -> None:
    without_range(**options, strict=True)
    assert not [record for record in caplog.records if record.name.startswith("capgraph")]


def test_buckets_without_a_range_are_an_error_alone(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(capgraph.InputError):
        without_range(buckets={"B": [2, 4]})
    assert not [record for record in caplog.records if record.name.startswith("capgraph")]
