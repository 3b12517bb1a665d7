"""Kernels in front of library calls let nothing start early; all others do."""

import pytest
from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch, LibraryCall
from capgraph.executors.cuda.lower.early_trigger import with_safe_triggers

from tests.executors.cuda.compiling import compile_problems, ptx_of

TEXTS = (
    'extern "C" __global__ void NAME() { begin(); }',
    f'extern "C" __global__ void NAME() {{\n{TRIGGER}\n{WAIT}\n}}',
)
CALL = LibraryCall("library", None, {}, 0)


def launch(text: str) -> KernelLaunch:
    return KernelLaunch(Kernel(text, (1, 1, 1), (1, 1, 1)), (), 0, may_overlap=True)


def lets_start(each: object) -> bool:
    assert isinstance(each, KernelLaunch)
    assert each.may_overlap
    return each.kernel.triggers


def test_only_the_kernel_before_a_call_holds_back() -> None:
    for text in TEXTS:
        own = launch(text)
        chosen = [Candidate("a", (own, own)), None, Candidate("b", (own, CALL, own)), Candidate("c", (own,))]
        first, nothing, second, third = with_safe_triggers(chosen)
        assert nothing is None
        assert first == chosen[0]
        assert second is not None
        assert third == chosen[3]
        assert [lets_start(each) for each in (second.launches[0], second.launches[2])] == [False, True]
        assert second.launches[1] is CALL


def test_a_call_in_a_later_step_counts_steps_without_launches_do_not() -> None:
    own = launch(TEXTS[0])
    chosen = [Candidate("a", (own,)), None, Candidate("nothing", ()), Candidate("call", (CALL,)), None]
    first, *others = with_safe_triggers(chosen)
    assert first is not None
    assert not lets_start(first.launches[0])
    assert others == chosen[1:]


def test_what_calls_right_before_wrote_is_waited_for_before_it_is_added() -> None:
    made, between, added, read = (
        LibraryCall("library", None, {role: BufferPlace(buffer) for role, buffer in places.items()}, 0)
        for places in ({"x": 0, "y": 1}, {"x": 5, "y": 2}, {"x": 2, "step0": 1, "y": 3}, {"x": 3, "step0": 1, "y": 4})
    )
    own = KernelLaunch(Kernel(TEXTS[0], (1, 1, 1), (32, 1, 1)), (), 0)
    fences: list[list[bool]] = []
    for order in (
        (own, made, None, between, added, read),
        (made, own, added),
        (own, made, between, read),
        (added, read),
    ):
        chosen = [Candidate("way", (each,)) if each is not None else None for each in order]
        found = [each for each in with_safe_triggers(chosen) if each is not None]
        fences.append([len(each.launches) > 1 for each in found])
    assert fences == [
        [False, False, False, True, False],
        [False, False, False],
        [False, False, False, True],
        [True, False],  # behind whatever ran before the plan
    ]
    fence, call = with_safe_triggers([Candidate("", (made,)), Candidate("", (added,))])[1].launches  # type: ignore[union-attr]
    assert call is added
    assert isinstance(fence, KernelLaunch)
    assert not fence.kernel.triggers
    assert compile_problems([fence.kernel], [90]) == []


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("triggers", [True, False])
def test_a_kernel_waits_and_triggers_if_it_is_to(text: str, triggers: bool) -> None:
    last = 'extern "C" __global__ void NAME() { begin(); }'  # not touched by what stands before it
    kernels = [Kernel(text, (1, 1, 1), (1, 1, 1), triggers=triggers), Kernel(last + " ", (1, 1, 1), (1, 1, 1))]
    assembly = ptx_of([kernel.text for kernel in kernels]).split(".entry")[1:]
    assert [each.count("griddepcontrol.wait") for each in assembly] == [1, 1]
    assert [each.count("griddepcontrol.launch_dependents") for each in assembly] == [int(triggers), 1]
