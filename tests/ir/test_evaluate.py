"""The reference evaluator: binding, checking, and errors that name the node."""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir import foreign as registry
from capgraph.ir.errors import CapgraphError, ExecutionError, InputError, ResourceError, ShapeError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph, match_type
from capgraph.ir.foreign import register_meaning
from capgraph.ir.graph import Node
from capgraph.ir.text.parser import parse, parse_type

from tests.causes import causes

F32 = np.float32
Run = Callable[..., Any]


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Makes a function of the operands the meaning of all ops of the domain `test`."""
    monkeypatch.setattr(registry, "_meanings", {})

    def register(run: Run) -> None:
        def meaning(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
            return run(*operands)  # type: ignore[no-any-return]

        register_meaning("test", meaning)

    return register


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


def evaluate(text: str, *inputs: Any, **sizes: int) -> tuple[Any, ...]:
    return evaluate_graph(parse(text), inputs, sizes)


def test_a_graph_gives_its_outputs_in_order() -> None:
    text = """graph @main(%x: f32[B], %y: f32[B]) {
  %a = add(%x, %y)
  %b = mul(%a, %a)
  return %b, %x, %a, %b
}"""
    b, x, a, again = evaluate(text, np.arange(3, dtype=F32), ones(3))
    assert b.tolist() == again.tolist() == [1, 4, 9]
    assert x.tolist() == [0, 1, 2]
    assert a.tolist() == [1, 2, 3]


def test_rank_0_results_are_arrays_of_the_declared_dtype() -> None:
    (result,) = evaluate("graph @main(%x: bf16[]) {\n  %y = exp(%x)\n  return %y\n}", np.array(1, ml_dtypes.bfloat16))
    assert isinstance(result, np.ndarray)
    assert result.dtype == ml_dtypes.bfloat16


def test_infinities_and_nan_are_results_and_no_warnings() -> None:
    (result,) = evaluate("graph @main(%x: f32[2]) {\n  %y = exp(%x)\n  return %y\n}", np.array([1e9, np.nan], F32))
    assert np.isinf(result[0])
    assert np.isnan(result[1])


# ---- sizes

SYMBOLIC = "graph @main(%x: f32[2*T], %y: f32[T, B]) {\n  %n = dims() {values = [T, B + 1]}\n  return %n\n}"


def test_symbols_are_bound_by_shapes_in_any_order() -> None:
    assert evaluate(SYMBOLIC, ones(6), ones(3, 5))[0].tolist() == [3, 6]
    assert evaluate("graph @main() {\n  %n = dims() {values = [T]}\n  return %n\n}", T=4)[0].tolist() == [4]


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ((ones(6),), "takes 2 inputs (x, y), not 1"),
        ((ones(6), ones(4, 5)), "input y: got shape [4, 5] instead of f32[T, B] with T=3"),
        ((ones(5), ones(3, 5)), "input x: got shape [5] instead of f32[2*T]"),
        ((ones(6), ones(3)), "input y: got shape [3] instead of f32[T, B]"),
        ((ones(6), np.ones((3, 5))), "input y: got float64 instead of f32"),
        ((ones(6), [1.0]), "input y: got list instead of an array"),
    ],
)
def test_inputs_that_do_not_fit(inputs: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(SYMBOLIC, *inputs)
    assert problem in caught.value.message


def test_a_symbol_that_no_input_binds_must_be_given() -> None:
    with pytest.raises(ShapeError, match="needs a value for T"):
        evaluate("graph @main() {\n  %n = dims() {values = [T]}\n  return %n\n}")


@pytest.mark.parametrize(
    ("ty", "size", "env", "fits", "bound"),
    [
        ("f32[T]", 3, {}, True, {"T": 3}),
        ("f32[2*T + 1]", 7, {}, True, {"T": 3}),
        ("f32[2*T]", 7, {}, False, {}),
        ("f32[T + 4]", 3, {}, False, {}),
        ("f32[T*S]", 6, {"S": 2}, True, {"S": 2, "T": 3}),
        ("f32[T*S]", 7, {"S": 2}, False, {"S": 2}),
        ("f32[T + S]", 7, {}, True, {}),
        ("f32[T//2]", 3, {}, True, {}),
        ("f32[T]", 4, {"T": 3}, False, {"T": 3}),
        ("f32[*]", 4, {}, True, {}),
    ],
)
def test_matching_binds_what_a_size_determines(
    ty: str, size: int, env: dict[str, int], fits: bool, bound: dict[str, int]
) -> None:
    problem = match_type(parse_type(ty), ones(size), env)
    assert (not problem) == fits
    assert env == bound


def test_other_types() -> None:
    assert not match_type(parse_type("seq(f32[])"), [], {})
    assert "instead of a sequence" in match_type(parse_type("seq(f32[])"), 3, {})
    assert not match_type(parse_type("optional(f32[])"), None, {})
    assert not match_type(parse_type("opaque('map')"), {}, {})


def test_sizes_that_running_makes_are_known_afterwards(foreign: Callable[[Run], None]) -> None:
    foreign(lambda x: [x[x > 0]])
    text = """graph @main(%x: f32[B]) {
  %y: f32[u0] = test.Positive(%x)
  %z = expand(%y) {shape = [2, u0]}
  return %z
}"""
    assert evaluate(text, np.array([1, -1, 2], F32))[0].tolist() == [[1, 2], [1, 2]]


# ---- foreign ops and failures

ONE = 'graph @main(%x: f32[2]) {\n  %y: f32[2] = test.Foo(%x, _) loc("layer 1")\n  return %y\n}'


def test_a_foreign_op_gets_the_operands_and_none_for_absent_ones(foreign: Callable[[Run], None]) -> None:
    foreign(lambda x, absent: [x + 1] if absent is None else [])
    assert evaluate(ONE, ones(2))[0].tolist() == [2, 2]


def raising(error: BaseException) -> Run:
    def run(*_operands: Any) -> Any:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "error", "problem"),
    [
        (raising(ValueError("bad")), ExecutionError, "test.Foo failed: bad"),
        (raising(ZeroDivisionError("zero")), ExecutionError, "test.Foo failed: zero"),
        (raising(MemoryError()), ResourceError, "out of memory for f32[2]"),
        (raising(UnsupportedError("not here")), UnsupportedError, "not here"),
        (lambda *_: [], ExecutionError, "test.Foo gave 0 results instead of 1"),
        (lambda *_: [np.ones(3, F32)], ExecutionError, "%y is declared as f32[2], but got shape [3]"),
        (lambda *_: [np.ones(2)], ExecutionError, "but got float64"),
    ],
)
def test_a_failure_names_the_node_and_its_origin(
    foreign: Callable[[Run], None], run: Run, error: type[CapgraphError], problem: str
) -> None:
    foreign(run)
    with pytest.raises(error) as caught:
        evaluate(ONE, ones(2))
    assert problem in caught.value.message
    assert caught.value.where == "%y = test.Foo(%x, _) from layer 1"
    causes(caught.value)


def test_a_failure_keeps_its_cause(foreign: Callable[[Run], None]) -> None:
    first = ValueError("bad")
    foreign(raising(first))
    with pytest.raises(ExecutionError) as caught:
        evaluate(ONE, ones(2))
    assert causes(caught.value) == [first]

    def explain(*_: Any) -> Any:
        raise UnsupportedError("not here") from first

    foreign(explain)
    with pytest.raises(UnsupportedError) as explained:
        evaluate(ONE, ones(2))
    assert causes(explained.value) == [first], "an error for users stays itself"


def test_faults_of_the_program_around_it_pass_through(foreign: Callable[[Run], None]) -> None:
    foreign(raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        evaluate(ONE, ones(2))


def test_values_are_dropped_after_their_last_use(foreign: Callable[[Run], None]) -> None:
    import gc
    import weakref

    alive: list[weakref.ref[np.ndarray]] = []
    counts: list[int] = []

    def run(*_operands: Any) -> list[np.ndarray]:
        gc.collect()
        counts.append(sum(ref() is not None for ref in alive))
        made = np.ones(2, F32)
        alive.append(weakref.ref(made))
        return [made]

    foreign(run)
    lines = "".join(f"  %{i + 1}: f32[2] = test.Foo(%{i})\n" for i in range(5))
    evaluate(f"graph @main(%0: f32[2]) {{\n{lines}  return %5\n}}", ones(2))
    assert counts == [0, 1, 1, 1, 1]


# ---- regions


def test_a_regions_own_symbols_are_bound_anew_on_each_run() -> None:
    text = """graph @main(%x: f32[B]) {
  %a = fused(%x) {body = @body}
  %t = concat(%a, %a) {axis = 0}
  %b: f32[2*B] = fused(%t) {body = @again}
  return %b
}
graph @body(%x: f32[S]) {
  %y = add(%x, %x)
  return %y
}
graph @again(%x: f32[S]) {
  %y = expand(%x) {shape = [S]}
  return %y
}"""
    assert evaluate(text, ones(2))[0].tolist() == [2, 2, 2, 2]


def test_a_regions_own_symbol_may_be_called_like_one_outside() -> None:
    text = """graph @main(%x: f32[B], %c: f32[4]) {
  %a: f32[4] = fused(%c) {body = @body}
  return %a
}
graph @body(%x: f32[B]) {
  %y = expand(%x) {shape = [B]}
  return %y
}"""
    assert evaluate(text, ones(2), ones(4))[0].tolist() == [1, 1, 1, 1]


def test_every_value_is_there_when_the_outputs_need_it() -> None:
    text = "graph @main(%x: f32[2]) {\n  %y = exp(%x)\n  %z = exp(%x)\n  return %x, %y\n}"
    graph = parse(text)
    outputs = evaluate_graph(graph, [ones(2)])
    assert [output.tolist() for output in outputs] == [[1, 1], np.exp(ones(2)).tolist()]
