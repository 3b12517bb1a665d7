"""Kernels in front of library calls let nothing start early; all others do."""

from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Kernel, KernelLaunch, LibraryCall
from capgraph.executors.cuda.lower.hand_over import handed_over

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
