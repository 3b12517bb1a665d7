"""Recurrent cells on a GPU: every candidate, launched one by one and in a graph, and whole programs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

import capgraph
from capgraph.executors.cuda.executor import cuda_problem
from capgraph.executors.cuda.kernel_ir.launch import Candidate, LibraryCall
from capgraph.executors.cuda.kernels.rnn.recurrent import lower_recurrent
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_graph

from tests.executors.cuda.recurrent_cases import BOTH, OPTIONAL, TOLERANCES, Case
from tests.gpu.on_device import OnDevice

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

EVERY = frozenset(OPTIONAL)
CASES = {
    "lstm": Case("lstm", steps=20, batch=3, features=64, hidden=128, operands=EVERY, attrs=BOTH),
    "one-sample": Case("lstm", steps=50, batch=1, features=128, hidden=256, operands=frozenset({"b"}), attrs=BOTH),
    "small": Case("lstm", steps=20, batch=9, features=8, hidden=24, operands=EVERY),
    "odd": Case("gru", steps=7, batch=17, features=5, hidden=37, operands=EVERY, attrs=BOTH),
    "gru": Case("gru", steps=20, batch=2, features=64, hidden=512, operands=EVERY),
    "linear-first": Case("gru", steps=20, batch=2, features=64, hidden=96, attrs=(("linear_before_reset", True),)),
    "large": Case("lstm", steps=3, batch=17, features=64, hidden=1100, operands=frozenset({"b"})),
    "clusters": Case("lstm", steps=20, batch=19, features=64, hidden=256, operands=EVERY, attrs=BOTH),
    "rnn": Case("rnn", steps=20, batch=4, features=32, hidden=64, operands=EVERY, attrs=(("direction", "reverse"),)),
}


def settled(case: Case) -> Case:
    """A case whose weights are as small as trained ones: each step then makes less of a difference, not more."""
    return replace(case, weight_scale=0.5 / case.hidden**0.5)


def is_close(found: Array, expected: Array, dtype: str) -> bool:
    limit = 4 * TOLERANCES[dtype]
    return np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=limit, atol=limit)


def libraries_of(candidate: Candidate) -> set[str]:
    return {launch.library for launch in candidate.launches if isinstance(launch, LibraryCall)}


@pytest.mark.parametrize("is_constant", [True, False], ids=["constants", "operands"])
@pytest.mark.parametrize("dtype", sorted(TOLERANCES))
@pytest.mark.parametrize("name", CASES)
def test_every_candidate(name: str, dtype: str, is_constant: bool, device: CudaDevice) -> None:
    case = settled(replace(CASES[name], dtype=dtype, weights_are_constants=is_constant))
    setting = case.setting()
    right = OnDevice(setting, device)
    installed = [each for each in lower_recurrent(setting.task) if libraries_of(each) <= device.backend.libraries]
    assert {each.name.split("+")[-1] for each in installed} - {"cluster"} == {"sole", "steps"}
    wrong = [
        f"{taken}, result {index}"
        for candidate in installed
        for taken, results in right.results(candidate)
        for index, (found, expected) in enumerate(zip(results, setting.expected, strict=True))
        if not is_close(found, expected, dtype)
    ]
    assert not wrong


@pytest.mark.parametrize("mode", ["full", "none"])
@pytest.mark.parametrize("name", CASES)
def test_programs_are_recorded_whole(name: str, mode: str) -> None:
    case = settled(replace(CASES[name], dtype="f16", weights_are_constants=True))
    graph = case.graph()
    with capgraph.optimize(graph, executor="graph", device="cuda", mode=mode, tune=False) as program:
        for call in range(4):
            arrays = replace(case, seed=call).arrays()
            inputs = {value.name: arrays[value.name] for value in graph.inputs}
            expected = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
            for found, wanted in zip(program.run(inputs).values(), expected, strict=True):
                assert is_close(np.asarray(found), np.asarray(wanted), "f16"), program.explain()
        assert "runs on the host" not in "\n".join(program.remarks)
        assert mode == "none" or program.stats().counters.replayed_calls == 3
