"""Recurrent cells: their kernels, emulated, give what the ops mean; models with them need no host."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, LibraryCall
from capgraph.executors.cuda.kernels.rnn.recurrent import MOST_LAUNCHES, lower_recurrent
from capgraph.executors.cuda.lower.early_trigger import with_safe_triggers
from capgraph.ir.constant import Array
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.cuda.codegen import running
from tests.executors.cuda.codegen.cases import subject_cases
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated
from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER, compiled, kernels_of, launched
from tests.executors.cuda.recurrent_cases import BOTH, GATES, OPTIONAL, PER_DIRECTION, TOLERANCES, Case
from tests.executors.cuda.solving import PADDING, Layout, Setting, solve
from tests.strategies.ops.sequences import ACTIVATIONS

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def is_emulable(candidate: Candidate) -> bool:
    """Whether its matmul, if it has one, needs no instructions of tensor cores."""
    return candidate.name.partition("+")[0] in ("cublaslt", "strided", "cluster", "sole", "steps", "states")


def emulable(made: Setting) -> list[Candidate]:
    """The candidates that the emulator has, or that `solving` stands in for."""
    return [each for each in lower_recurrent(made.task) if is_emulable(each)]


def all_found(settings_: Sequence[Setting], folder: Path) -> Iterator[tuple[Setting, Candidate, list[Array]]]:
    """The results of every candidate of every setting; the kernels of all are compiled at once."""
    candidates = [(made, candidate) for made in settings_ for candidate in emulable(made)]
    launches = [launch for _, candidate in candidates for launch in candidate.launches]
    library = compiled((launch.kernel for launch in launches if isinstance(launch, KernelLaunch)), folder)
    for turn, (made, candidate) in enumerate(candidates):
        library.set_backwards(turn % 2)
        for view in made.task.results:
            made.memory.buffers[view.buffer][PADDING:-PADDING] = 0xFF
        made.memory.buffers[made.task.scratch.buffer][PADDING:-PADDING] = 0xFF
        for launch in candidate.launches:
            if isinstance(launch, LibraryCall):
                solve(launch, made.memory)
            else:
                launched(library, launch, made.memory.address)
        assert made.memory.is_intact()
        yield made, candidate, made.found(Candidate("", ()))


def problems(cases: Sequence[Case], folder: Path) -> list[str]:
    """What is not as the op means it."""
    by_task = {}
    for case in cases:
        made = case.setting()
        by_task[id(made)] = (case, made)
    found: list[str] = []
    for made, candidate, results in all_found([made for _, made in by_task.values()], folder):
        case = by_task[id(made)][0]
        limit = TOLERANCES[case.dtype]
        for index, (each, wanted) in enumerate(zip(results, made.expected, strict=True)):
            a, b = each.astype(np.float64), wanted.astype(np.float64)
            largest = np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=1.0)
            if not np.allclose(a, b, rtol=limit, atol=limit * largest, equal_nan=True):  # states without bounds cancel
                found.append(f"{case}, {candidate.name}, result {index}: {np.abs(a - b).max()}")
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Cells of all kinds, also without steps, samples or features."""
    op = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(("forward", "reverse", "bidirectional")))
    attrs: dict[str, Any] = {"direction": direction, "layout": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        count = PER_DIRECTION[op] * (2 if direction == "bidirectional" else 1)
        attrs["activations"] = tuple(draw(st.sampled_from(ACTIVATIONS)) for _ in range(count))
        attrs["activation_alpha"] = (0.5, 0.25)[: draw(st.integers(0, 2))]
        attrs["activation_beta"] = (0.3,)[: draw(st.integers(0, 1))]
    if draw(st.booleans()):
        attrs["clip"] = draw(st.sampled_from((0.25, 1.0)))
    if op == "lstm":
        attrs["input_forget"] = draw(st.booleans())
    if op == "gru":
        attrs["linear_before_reset"] = draw(st.booleans())
    return Case(
        op,
        draw(st.sampled_from(sorted(TOLERANCES))),
        steps=draw(st.integers(0, 4)),
        batch=draw(st.integers(0, 11)),
        features=draw(st.integers(0, 4)),
        hidden=draw(st.sampled_from((1, 2, 3, 8, 20))),
        operands=frozenset(draw(st.sets(st.sampled_from(OPTIONAL)))),
        attrs=tuple(attrs.items()),
        weights_are_constants=draw(st.booleans()),
        length_dtype=draw(st.sampled_from(("i32", "i64"))),
        seed=draw(st.integers(0, 9)),
    )


@needs_compiler
@settings(max_examples=10, deadline=None)
@given(st.lists(cases(), min_size=1, max_size=12))
def test_every_candidate_gives_what_the_op_means(drawn: list[Case]) -> None:
    with TemporaryDirectory() as folder:
        assert not problems([case for case in drawn if case.batch], Path(folder))


@needs_compiler
def test_planned_cells_with_special_numbers(tmp_path: Path) -> None:
    """Every operand in every dtype, in plans of their own: infinities, NaN, and numbers next to them."""
    drawn = list(subject_cases(2, sorted(GATES)))
    assert len(drawn) > 100
    with patch.object(
        running, "generated", lambda candidate: [each for each in generated(candidate) if is_emulable(each)]
    ):
        assert not emulated_problems(drawn, tmp_path)


@needs_compiler
def test_more_units_rows_and_weights_than_fit_at_a_time(tmp_path: Path) -> None:
    every = frozenset(OPTIONAL)
    drawn = [
        Case("lstm", hidden=70, batch=17, operands=every, attrs=BOTH),
        Case("gru", hidden=136, batch=9, dtype="f16", weights_are_constants=True),  # several pieces a lane
        Case("lstm", hidden=680, batch=1, operands=every, steps=2),  # weights that registers do not hold
        Case("gru", hidden=1030, batch=3, dtype="f64", steps=2),
    ]
    assert not problems(drawn, tmp_path)


def of_clusters(case: Case) -> list[Candidate]:
    """The candidates of a case by clusters."""
    return [each for each in lower_recurrent(case.setting().task) if each.name.endswith("cluster")]


@needs_compiler
def test_clusters_keep_every_digit_of_hidden_values(tmp_path: Path) -> None:
    every = frozenset(OPTIONAL)
    linear = (("direction", "reverse"), ("linear_before_reset", True), ("layout", 1))
    drawn = [
        Case("lstm", "f16", hidden=32),
        Case("rnn", "f16", hidden=48, batch=11, operands=every, attrs=BOTH, weights_are_constants=True),
        Case("gru", "bf16", hidden=64, batch=3, operands=every, attrs=linear, weights_are_constants=True),
        Case("lstm", "f16", hidden=64, batch=5, operands=every, attrs=BOTH, weight_scale=0.1),
        Case("rnn", "f32", hidden=48, batch=11, operands=every, attrs=BOTH, weights_are_constants=True),
        Case("gru", "f32", hidden=64, batch=3, operands=every, attrs=linear),
        Case("lstm", "f32", hidden=112, batch=5, operands=every, attrs=BOTH),
    ]
    assert all(of_clusters(case) for case in drawn)
    assert not problems(drawn, tmp_path)


def test_clusters_take_cells_whose_weights_they_hold() -> None:
    others = [
        Case("lstm", "f64", hidden=64),
        Case("lstm", "f32", hidden=256),
        Case("rnn", "f32", hidden=512),
        Case("lstm", "f16", hidden=40),
        Case("lstm", "f16", hidden=512),
        Case("gru", "f16", hidden=64),  # candidates need the reset of every unit
    ]
    assert not [case for case in others if of_clusters(case)]
    (kernel, *_) = kernels_of(of_clusters(Case("lstm", "f16", hidden=256, batch=9, attrs=BOTH)))[-1:]
    assert (kernel.grid, kernel.block, kernel.cluster) == ((8, 2, 2), (256, 1, 1), (8, 1, 1))


def every_other(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def turned(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


@needs_compiler
def test_operands_and_results_may_lie_in_any_way(tmp_path: Path) -> None:
    names = ("x", "w", "r", "b", "lengths", "initial_h", "initial_c", "peepholes")
    case = Case("lstm", hidden=8, operands=frozenset(OPTIONAL), attrs=BOTH)
    layouts: dict[str, Layout] = dict.fromkeys(names, every_other)
    layouts |= dict.fromkeys(("w", "r"), turned)  # so that directions have matmuls of their own
    made = case.setting(layouts)
    results = [made.found(candidate, tmp_path) for candidate in emulable(made)]
    assert len(results) >= 2
    for found in results:
        for each, wanted in zip(found, made.expected, strict=True):
            assert np.allclose(each, wanted, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_a_length_out_of_range_counts_as_the_nearest(tmp_path: Path) -> None:
    case = Case("gru", steps=4, batch=3, operands=frozenset({"lengths"}), attrs=(("direction", "reverse"),))
    made, within = case.setting(), case.setting()
    for each, lengths in ((made, (-5, 9, 2)), (within, (0, 4, 2))):
        view = each.task.operands[4]
        assert view is not None
        each.memory.tensor(BufferPlace(view.buffer), np.int64, (3,), (1,))[...] = lengths
    found, wanted = [each.found(emulable(each)[0], tmp_path) for each in (made, within)]
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a, b)


def test_many_steps_are_one_launch() -> None:
    case = Case("gru", steps=MOST_LAUNCHES // 2 + 1, batch=1, hidden=40)
    candidates = emulable(case.setting())
    assert {each.name.split("+")[-1] for each in candidates} == {"sole"}
    shorter = replace(case, steps=MOST_LAUNCHES // 2)
    assert max(len(each.launches) for each in emulable(shorter.setting())) == MOST_LAUNCHES + 2


def test_every_kernel_compiles() -> None:
    drawn = [
        Case(
            op,
            dtype,
            batch=batch,
            hidden=hidden,
            operands=frozenset(OPTIONAL) if hidden > 8 else frozenset(),
            attrs=(*BOTH, *extra),
            weights_are_constants=hidden > 8,
        )
        for op, extra in (("lstm", ()), ("gru", ()), ("gru", (("linear_before_reset", True),)), ("rnn", ()))
        for dtype in TOLERANCES
        for hidden, batch in ((3, 2), (256, 9))
    ]
    drawn.append(Case("lstm", hidden=1024, batch=1))  # weights that registers do not hold
    drawn += [Case(op, "f16", hidden=256, operands=frozenset(OPTIONAL), attrs=BOTH) for op in ("lstm", "rnn")]
    drawn += [Case("rnn", dtype, attrs=(("activations", (name,)),)) for dtype in ("f32", "f64") for name in ACTIVATIONS]
    candidates = [candidate for case in drawn for candidate in emulable(case.setting())]
    kernels = kernels_of(candidates)
    assert not compile_problems([kernel for kernel in kernels if kernel.cluster == (1, 1, 1)])
    assert not compile_problems([kernel for kernel in kernels if kernel.cluster != (1, 1, 1)], [90, 100])


def test_only_constants_are_read_before_the_kernel_waits() -> None:
    for is_constant in (False, True):
        case = Case("lstm", hidden=64, operands=frozenset({"b"}), weights_are_constants=is_constant)
        steps = next(each for each in emulable(case.setting()) if each.name.endswith("steps"))
        before, behind = steps.launches[-1].kernel.text.split("griddepcontrol.wait")
        assert ("(r +" in before, "= get(b[" in before) == (is_constant, is_constant)
        assert not any(name in before for name in ("projected[", "before +", "lengths["))
        assert "(before +" in behind


def test_the_last_step_in_front_of_a_library_call_starts_nothing_early() -> None:
    case = Case("lstm", hidden=64, batch=64)
    steps = next(each for each in emulable(case.setting()) if each.name == "cublaslt+steps")
    first, _ = with_safe_triggers([steps, steps])
    assert first is not None
    starts = [each.kernel.triggers for each in first.launches[2:]]
    assert starts == [True] * (case.steps - 1) + [False]
