"""Kernels in front of library calls let nothing start early; all others do."""

from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch, LibraryCall
from capgraph.executors.cuda.lower.hand_over import handed_over

from tests.executors.cuda.compiling import compile_problems

TEXTS = (
    'NAME() { begin(); asm volatile("griddepcontrol.wait;"); }',
    f"NAME() {{\n{TRIGGER}\n{WAIT}\n}}",
)
CALL = LibraryCall("library", None, {}, 0)


def launch(text: str) -> KernelLaunch:
    return KernelLaunch(Kernel(text, (1, 1, 1), (1, 1, 1)), (), 0, may_overlap=True)


def lets_start(each: object) -> bool:
    assert isinstance(each, KernelLaunch)
    text = each.kernel.text
    assert "griddepcontrol.wait" in text
    assert each.may_overlap
    return "begin();" in text or "launch_dependents" in text


def test_only_the_kernel_before_a_call_holds_back() -> None:
    for text in TEXTS:
        own = launch(text)
        chosen = [Candidate("a", (own, own)), None, Candidate("b", (own, CALL, own)), Candidate("c", (own,))]
        first, nothing, second, third = handed_over(chosen)
        assert nothing is None
        assert first == chosen[0]
        assert second is not None
        assert third == chosen[3]
        assert [lets_start(each) for each in (second.launches[0], second.launches[2])] == [False, True]
        assert second.launches[1] is CALL


def test_a_call_in_a_later_step_counts_steps_without_launches_do_not() -> None:
    own = launch(TEXTS[0])
    chosen = [Candidate("a", (own,)), None, Candidate("nothing", ()), Candidate("call", (CALL,)), None]
    first, *others = handed_over(chosen)
    assert first is not None
    assert not lets_start(first.launches[0])
    assert others == chosen[1:]


def test_a_residual_of_the_call_before_is_waited_for() -> None:
    made = LibraryCall("library", None, {"x": BufferPlace(0), "y": BufferPlace(1)}, 0)
    added = LibraryCall("library", None, {"x": BufferPlace(2), "step0": BufferPlace(1), "y": BufferPlace(3)}, 0)
    read = LibraryCall("library", None, {"x": BufferPlace(3), "step0": BufferPlace(2), "y": BufferPlace(4)}, 0)
    first, _, second, third = handed_over(
        [Candidate(f"{i}", (x,)) if x else None for i, x in enumerate((made, None, added, read))]
    )
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.launches == (made,)
    assert third.launches == (read,)
    fence, call = second.launches
    assert call is added
    assert isinstance(fence, KernelLaunch)
    assert "begin_alone();" in fence.kernel.text
    assert compile_problems([fence.kernel], [90]) == []
