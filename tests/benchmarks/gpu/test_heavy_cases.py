"""The cases that are measured one by one: each builds a graph whose step is heavy work that CUDA has a family for."""

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.lower.lowering import families_of
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType
from capgraph.ir.verify import verify
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from benchmarks.gpu import heavy_cases


def zeros(shape: Sequence[int], dtype: DType, _scale: float = 1.0) -> np.ndarray:
    return np.zeros(tuple(shape), dtype.numpy)


@pytest.mark.parametrize("family", heavy_cases.FAMILIES)
def test_every_case_is_one_step_with_its_inputs(family: str) -> None:
    with patch.object(heavy_cases, "drawn", zeros):
        for case in heavy_cases.FAMILIES[family]():
            graph = Graph()
            inputs = case.build(graph)
            Pipeline(((Fuse(),),)).run(graph)
            verify(graph)
            steps = [node for node in graph.nodes if node.inputs]
            assert len(steps) == 1, case.name
            assert families_of(steps[0].op.name), case.name
            assert inputs.keys() == {value.name for value in graph.inputs}, case.name
