import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import onnx
import pytest

from tests.api.models import affine, model, save, with_default, with_foreign_node


def test_inputs_and_outputs_are_types_by_name() -> None:
    program = capgraph.optimize(affine())
    assert {name: str(ty) for name, ty in program.inputs.items()} == {"x": "f32[batch, 3]"}
    assert {name: str(ty) for name, ty in program.outputs.items()} == {"y": "f32[batch, 3]"}
    assert program.graph.inputs[0].name == "x"
    assert repr(program) == "Program(main, 4 nodes, ort on host)"


def test_a_default_may_be_overridden() -> None:
    program, x = capgraph.optimize(with_default()), np.zeros(3, np.float32)
    assert program.run({"x": x})["y"].tolist() == [1, 2, 3]
    assert program.run({"x": x, "w": np.ones(3, np.float32)})["y"].tolist() == [1, 1, 1]
    assert program.run({"x": x})["y"].tolist() == [1, 2, 3]


def test_a_program_without_inputs_needs_none() -> None:
    program = capgraph.optimize(model("main () => (float[2] y) <float[2] c = {1, 2}> { y = Identity(c) }"))
    assert program.run()["y"].tolist() == [1, 2]


def test_inputs_that_do_not_fit_are_refused() -> None:
    program = capgraph.optimize(affine())
    with pytest.raises(capgraph.InputError, match="missing"):
        program.run()
    with pytest.raises(capgraph.InputError, match="dtype float64"):
        program.run({"x": np.zeros((1, 3))})


@pytest.mark.parametrize("executor", ["ort", "eager", "graph"])
def test_what_fails_names_the_node_the_model_and_what_to_do(executor: str) -> None:
    picking = "net (float[N] x, int64[K] i) => (float[K] y) { h = Neg(x) [pick] y = Gather(h, i) }"
    program = capgraph.optimize(model(picking), executor=executor)
    x = np.zeros(3, np.float32)
    for _ in range(3):  # eagerly, recorded and replayed
        with pytest.raises(capgraph.ExecutionError, match="index 7 is out of range") as caught:
            program.run({"x": x, "i": np.array([7])})
        assert caught.value.where == "%y = gather(%h, %i) from pick of model net"
        assert caught.value.remedy
    with pytest.raises(capgraph.InputError, match="missing") as refused:
        program.run({"x": x})
    assert refused.value.where == "model net"


@pytest.mark.parametrize("executor", ["ort", "eager", "graph"])
def test_a_result_that_memory_does_not_hold_is_named(executor: str) -> None:
    program = capgraph.optimize(
        model("main (float[n] x, int64[1] s) => (float[m] y) { y = Expand(x, s) }"), executor=executor
    )
    with pytest.raises(
        capgraph.ResourceError, match=r"a result f32\[1000000000000000\], 3.6 PiB\n.*at model main\n.*try"
    ):
        program.run({"x": np.ones(1, np.float32), "s": np.array([10**15])})


@pytest.mark.parametrize("doing", ["compile", "run", "save_model", "load_model"])
def test_wherever_memory_runs_out_it_is_our_error(doing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_given: object, **_options: object) -> None:
        raise MemoryError

    places = {
        "compile": "executors.steps.EagerExecutor.compile",
        "run": "executors.steps.EagerExecutable.run",
        "save_model": "frontends.onnx.exporting.saving.save_model",
        "load_model": "optimization.load_model",
    }
    monkeypatch.setattr(f"capgraph.{places[doing]}", fail)

    def used() -> None:
        program = capgraph.optimize(affine(), executor="eager")
        program.run({"x": np.zeros((1, 3), np.float32)})
        program.save_onnx(tmp_path / "out.onnx")

    with pytest.raises(capgraph.ResourceError, match="memory"):
        used()


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_program_is_not_copied(copied: Any) -> None:
    with pytest.raises(capgraph.UnsupportedError, match=r"(?s)cannot be copied or pickled.*save_onnx"):
        copied(capgraph.optimize(affine()))


def test_what_fails_before_there_are_inputs_names_the_model_too() -> None:
    failing = "net () => (float[2] y) <float[2] c = {1, 2}, int64[2] i = {0, 7}> { y = Gather(c, i) }"
    with pytest.raises(capgraph.ExecutionError, match="out of range") as caught:
        capgraph.optimize(model(failing), executor="eager", level=0).run()
    assert str(caught.value.where).endswith("of model net")


def test_explain_says_what_there_is() -> None:
    text = capgraph.optimize(with_default()).explain()
    assert "program main: 1 node, 3 parameters (12 B)" in text
    assert "input: w: f32[3] (optional)" in text
    assert "output: y: f32[3]" in text
    assert "executor: ort on host" in text
    assert "foreign ops: none" in text


@pytest.mark.parametrize(
    ("executor", "manner"),
    [
        ("eager", "eager on host, one node after another: it captures nothing"),
        ("ort", "ort on host, in sessions"),
        ("graph", "graph on host, recorded and replayed"),
    ],
)
def test_explain_says_in_which_manner_nodes_run(executor: str, manner: str) -> None:
    assert f"executor: {manner}" in capgraph.optimize(affine(), executor=executor).explain().splitlines()


def test_explain_names_maps_in_words() -> None:
    text = """<ir_version: 8, opset_import: ["": 9, "ai.onnx.ml": 1]>
    net (float[N, 2] x) => (seq(map(string, float)) y) {
      y = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (x)
    }"""
    assert "output: y: seq(opaque('map(string, f32)'))" in capgraph.optimize(onnx.parser.parse_model(text)).explain()


def test_explain_lists_the_passes() -> None:
    twice = model("main (float[2] x) => (float[2] y) { a = Neg(x)  b = Neg(a)  y = Exp(b) }")
    lines = capgraph.optimize(twice).explain().splitlines()
    (head,) = [line for line in lines if line.startswith("level: 2")]
    assert head.startswith("level: 2, 3 nodes became 1 by 1 rewrite in ")
    (done,) = [line for line in lines if line.startswith("  canonicalize")]
    assert done.startswith("  canonicalize: 1 rewrite, -2 nodes, ")
    assert not any(line.startswith("  cse: ") for line in lines)
    assert "level: 0, no passes" in capgraph.optimize(twice, level=0).explain()


def test_explain_names_foreign_ops_and_notes() -> None:
    program = capgraph.optimize(with_foreign_node())
    assert "com.example.Mystery x 1" in program.explain()
    old = model("main (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add(x, w) }", ir_version=3, opset=13)
    assert "note: inputs with an initializer were frozen: 1 " in capgraph.optimize(old).explain()


def test_explain_says_what_could_not_be_checked() -> None:
    """Behind log(0) the output is -inf wherever it is looked at; the fold into one factor rounds."""
    lost = model(
        "main (float[2] x) => (float[2] y) { z = Sub(x, x) l = Log(z) c = Constant<value = float {0.1}>() "
        "p = Mul(l, c) y = Mul(p, c) }"
    )
    assert "note: output y is not checked" in capgraph.optimize(lost, verify="numeric").explain()


def test_an_unknown_op_is_named_when_it_runs() -> None:
    program = capgraph.optimize(with_foreign_node())
    with pytest.raises(capgraph.CapgraphError, match=r"Mystery"):
        program.run({"x": np.zeros(2, np.float32)})


def test_a_closed_program_does_not_run() -> None:
    with capgraph.optimize(affine()) as program:
        program.run({"x": np.zeros((1, 3), np.float32)})
    with pytest.raises(capgraph.ExecutionError, match="closed"):
        program.run({"x": np.zeros((1, 3), np.float32)})


def test_threads_share_a_program() -> None:
    program = capgraph.optimize(affine())

    def call(rows: int) -> bool:
        x = np.full((rows, 3), rows, np.float32)
        return all(np.array_equal(program.run({"x": x})["y"], 2 * x + 1) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(8)))


def test_a_program_is_called_with_arrays() -> None:
    x = np.ones((2, 3), np.float32)
    program = capgraph.optimize(affine(), executor="eager")
    np.testing.assert_array_equal(program(x), np.full((2, 3), 3, np.float32))
    np.testing.assert_array_equal(program(x=x), program(x))
    for args, kwargs, said in (((x, x), {}, "2 inputs were given"), ((x,), {"x": x}, "'x' was given twice")):
        with pytest.raises(capgraph.InputError, match=said):
            program(*args, **kwargs)
    with pytest.raises(capgraph.InputError, match="missing"):
        program()


def test_several_outputs_are_a_tuple() -> None:
    program = capgraph.optimize(model("main (float[3] x) => (float[3] y, float[3] z) { y = Neg(x) z = Abs(x) }"))
    y, z = program(-np.ones(3, np.float32))
    assert (y == z).all()


def test_a_program_is_saved_in_the_form_that_it_came_in(tmp_path: Path) -> None:
    source = save(affine(), tmp_path)
    came = onnx.load(source)
    program = capgraph.optimize(source, executor="eager")
    out = tmp_path / "out.onnx"
    program.save_onnx(out)
    written = onnx.load(out)
    facts = {entry.key: entry.value for entry in written.metadata_props}
    assert facts["capgraph.version"] == capgraph.__version__
    assert facts["capgraph.target"] == "standard"
    assert facts["capgraph.passes"].startswith("eliminate-dead-code")
    assert written.ir_version == came.ir_version
    assert written.opset_import[0].version == came.opset_import[0].version
    x = np.ones((2, 3), np.float32)
    found = capgraph.optimize(out).run({"x": x})
    np.testing.assert_array_equal(found["y"], program.run({"x": x})["y"])
    program.save_onnx(out, opset=17, target="ort")
    assert onnx.load(out).opset_import[0].version == 17
    with pytest.raises(capgraph.UnsupportedError, match="target='gpu'"):
        program.save_onnx(out, target="gpu")
