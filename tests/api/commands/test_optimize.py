import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from capgraph.cli import main
from capgraph.ir.graph import Graph
from capgraph.passes.framework.pipeline import Pipeline, PipelineReport
from capgraph.sources import load_model

from tests.api.models import model, save

WASTEFUL = (
    "main (float[batch, 3] x) => (float[batch, 3] y) <float two = {2}, float one = {1}> {"
    "  a = Mul(x, one)  b = Mul(a, two)  c = Mul(a, two)  d = Neg(b)  e = Neg(d)  y = Add(c, e) }"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(model(WASTEFUL), tmp_path, "in.onnx")


def optimize(source: Path, output: Path, *options: str) -> int:
    return main(["optimize", str(source), "-o", str(output), *options])


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_smaller_model_is_written(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert optimize(source, out) == 0
    assert operators(out) == ["Mul", "Add"]
    onnx.checker.check_model(onnx.load(out), full_check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]


def test_the_report_as_json(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(source, tmp_path / "out.onnx", "--json", "--check", "2", "--dim", "batch=4") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["nodes"] == {"before": 6, "after": 2}
    assert facts["operators"] == {"before": {"Mul": 3, "Neg": 2, "Add": 1}, "after": {"Mul": 1, "Add": 1}}
    assert facts["costs"]["before"]["flops"] == 72
    assert facts["costs"]["after"]["flops"] == 24
    assert facts["costs"]["after"]["parameters"] == 1
    assert {each["name"] for each in facts["passes"]} >= {"cse", "canonicalize"}
    assert facts["rewrites"]["multiply-by-one"] == 1
    assert facts["check"]["sizes"] == {"batch": 4}
    assert facts["check"]["inputs"] == 2
    (output,) = facts["check"]["outputs"]
    assert (output["name"], output["largest"], output["relative"], output["is_close"]) == ("y", 0.0, 0.0, True)


def test_the_report_as_text(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(source, tmp_path / "out.onnx", "--check", "1") == 0
    found = capsys.readouterr()
    rows = [line.split() for line in found.out.splitlines()]
    assert ["Mul", "3", "1", "-2"] in rows
    assert ["all", "nodes", "6", "2", "-4"] in rows
    assert ["FLOPs", "18*batch", "6*batch"] in rows
    assert "standard operators only" in found.out
    assert "compared on 1 input through onnxruntime" in found.out
    assert not found.err


def test_levels_and_passes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert optimize(source, out, "--level", "0") == 0
    assert len(operators(out)) == 6
    assert optimize(source, out, "--passes", "cse") == 0
    assert operators(out) == ["Mul", "Mul", "Neg", "Neg", "Add"]
    assert optimize(source, out, "--without", "cse") == 0
    assert operators(out) == ["Mul", "Mul", "Add"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--passes", "csx"], "there is no pass csx"),
        (["--passes", "cse{limit=1}"], "no option limit"),
        (["--passes", ""], "--passes '' names no pass\n  try: --level 0"),
        (["--passes", " ; "], "names no pass"),
        (["--passes", "cse,"], "a pass without a name"),
        (["--without", "csx"], "the pipeline has no pass csx"),
    ],
)
def test_unknown_passes(
    source: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimize(source, tmp_path / "out.onnx", *options) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("options", [[], ["--check", "1"], ["--verify", "numeric"]])
def test_dims_that_the_model_does_not_have(
    source: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimize(source, tmp_path / "out.onnx", "--dim", "bacth=3", *options) == 1
    assert "the model has no dim 'bacth'\n  try: one of batch" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_dims_that_data_decide_may_be_named_as_the_costs_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "main (float[batch] x) => (int64[1, found] y) { n = NonZero(x)  y = Neg(n) }"
    source = save(model(text), tmp_path, "in.onnx")
    assert optimize(source, tmp_path / "out.onnx", "--json", "--check", "1", "--dim", "u0=5") == 0
    assert json.loads(capsys.readouterr().out)["check"]["sizes"] == {"u0": 5, "batch": 3}


@pytest.mark.parametrize("options", [["--level", "4"], ["--level", "2", "--passes", "cse"], ["--for", "tflite"]])
def test_arguments_that_make_no_sense(source: Path, tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit):
        optimize(source, tmp_path / "out.onnx", *options)


def test_a_model_that_no_operator_of_onnxruntime_shortens_stays_standard(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimize(source, tmp_path / "out.onnx", "--for", "ort") == 0
    assert "standard operators say it all" in capsys.readouterr().out


@pytest.mark.parametrize(("activation", "is_noted"), [("Sigmoid", True), ("Relu", False)])
def test_what_only_the_cpu_has_of_an_operator_is_said(
    activation: str, is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 20]>
net (float[1, 2, 4, 4] x, float[3, 2, 1, 1] w) => (float[1, 3, 4, 4] y) {{ c = Conv(x, w)  y = {activation}(c) }}"""
    path = tmp_path / "conv.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert optimize(path, tmp_path / "out.onnx", "--for", "ort") == 0
    assert ("the model is for the CPU" in capsys.readouterr().out) is is_noted
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["FusedConv"]


def test_operators_that_are_not_standard_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1, "my": 1]>
net (float[3, 3] x) => (float[3, 3] y) <float[3, 3] a, float[3, 3] b, float[3, 3] c> {
  a = com.microsoft.FusedMatMul<transB = 1>(x, x)  b = my.Foo(a)  c = my.Foo(b)  y = Relu(c) }"""
    path = tmp_path / "in.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert optimize(path, tmp_path / "out.onnx") == 0
    found = capsys.readouterr().out
    assert "standard operators only" not in found
    assert "out.onnx, standard operators, and others (see the note)" in found
    assert "no standard form here: com.microsoft.FusedMatMul (1), my.Foo (2)\n" in found
    assert optimize(path, tmp_path / "out.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["not_standard"] == {"com.microsoft.FusedMatMul": 1, "my.Foo": 2}


@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
def test_the_input_is_never_overwritten(
    source: Path, tmp_path: Path, link: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = source.read_bytes(), tmp_path / "link.onnx"
    if link == "same":
        (tmp_path / "folder").mkdir()
        out = tmp_path / "folder" / ".." / "in.onnx"
    elif link == "symbolic":
        out.symlink_to(source)
    else:
        os.link(source, out)
    assert optimize(source, out) == 1
    assert "is the model itself" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_external_data_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "w"))
    source = tmp_path / "in.onnx"
    onnx.save(made, source, save_as_external_data=True, location="in.data", size_threshold=0)
    before = (tmp_path / "in.data").read_bytes()
    assert optimize(source, tmp_path / "in.data") == 1
    assert "is the model itself" in capsys.readouterr().err
    assert (tmp_path / "in.data").read_bytes() == before
    assert optimize(source, tmp_path / "out.onnx", "--check", "1") == 0


@pytest.mark.parametrize("is_link", [False, True])
def test_options_of_sessions_never_overwrite_the_input(
    tmp_path: Path, is_link: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "w"))
    source, out, data = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "out.onnx.options.json"
    location = "in.data" if is_link else data.name
    onnx.save(made, source, save_as_external_data=True, location=location, size_threshold=0)
    if is_link:
        data.symlink_to("in.data")
    before = data.read_bytes()
    assert optimize(source, out, "--session-options") == 1
    assert f"{data} is the model itself" in capsys.readouterr().err
    assert data.read_bytes() == before
    assert not out.exists()


def test_options_of_sessions_never_overwrite_the_output(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, options = tmp_path / "out.onnx", tmp_path / "out.onnx.options.json"
    options.write_bytes(b"earlier")
    out.symlink_to(options)
    assert optimize(source, out, "--session-options") == 1
    assert f"{options} is the model itself, {out}" in capsys.readouterr().err
    assert options.read_bytes() == b"earlier"


def test_a_broken_model_leaves_the_output_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.onnx").write_bytes(b"no model")
    (tmp_path / "out.onnx").write_bytes(b"earlier")
    assert optimize(tmp_path / "in.onnx", tmp_path / "out.onnx") == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    assert (tmp_path / "out.onnx").read_bytes() == b"earlier"


def test_places_that_cannot_be_written(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(source, tmp_path) == 1
    assert "is a folder" in capsys.readouterr().err
    assert optimize(source, tmp_path / "missing" / "out.onnx") == 1
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--check", "1"], ["--session-options"]])
def test_a_fifo_is_never_replaced(
    source: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert optimize(source, fifo, *options) == 1
    assert "fifo is a FIFO\n  try: name the file to write" in capsys.readouterr().err
    assert fifo.is_fifo()


@pytest.mark.parametrize("options", [[], ["--check", "1"]])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_link_is_followed(source: Path, tmp_path: Path, options: list[str], is_there: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link.onnx"
    folder.mkdir()
    if is_there:
        (folder / "out.onnx").write_bytes(b"earlier")
    link.symlink_to(folder / "out.onnx")
    assert optimize(source, link, *options) == 0
    assert link.is_symlink()
    assert [path.name for path in folder.iterdir()] == ["out.onnx"]
    assert operators(link) == ["Mul", "Add"]


def test_options_of_sessions_lie_beside_the_link(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.onnx").symlink_to(tmp_path / "folder" / "out.onnx")
    assert optimize(source, tmp_path / "link.onnx", "--session-options") == 0
    assert (tmp_path / "link.onnx.options.json").is_file()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["out.onnx"]


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"])
@pytest.mark.parametrize("option", [[], ["--check", "1"]])
def test_names_that_no_file_can_have(
    source: Path, name: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimize(source, source.with_name(name), *option) == 1
    assert "capgraph optimize: InputError" in capsys.readouterr().err


def test_a_model_that_differs_is_not_put_in_place(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_it(_pipeline: Pipeline, graph: Graph, **_options: object) -> PipelineReport:
        graph.adopt(load_model(model(WASTEFUL.replace("{2}", "{2.5}"))).graph)
        return PipelineReport()

    monkeypatch.setattr(Pipeline, "run", break_it)
    assert optimize(source, tmp_path / "out.onnx", "--check", "1") == 1
    error = capsys.readouterr().err
    assert "output y of the optimized model differs" in error
    assert "capgraph bisect" in error
    assert [path.name for path in tmp_path.iterdir()] == ["in.onnx"]


RANDOM = "main (float[4] x) => (float[4] y) { r = RandomNormalLike(x)  y = Add(x, r) }"
SEQUENCE = "main (seq(float[3]) x) => (float[n, 3] y) { y = ConcatFromSequence<axis = 0, new_axis = 1>(x) }"


def test_numeric_checks_find_sizes_that_the_model_runs_on(tmp_path: Path) -> None:
    text = "main (float[n, m] x) => (float[a, 12] y) <int64[2] s = {-1, 12}> { e = Exp(x)  y = Reshape(e, s) }"
    assert optimize(save(model(text), tmp_path, "in.onnx"), tmp_path / "out.onnx", "--verify", "numeric") == 0


@pytest.mark.parametrize("options", [["--rtol", "1"], ["--atol", "1"], ["--input", "x=random"]])
def test_options_of_a_check_want_one(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save(model("main (float[n] x) => (float[n] y) { y = Exp(x) }"), tmp_path, "in.onnx")
    assert optimize(source, tmp_path / "out.onnx", *options) == 1
    assert "are of --check" in capsys.readouterr().err
    assert optimize(source, tmp_path / "out.onnx", *options, "--check", "1") == 0


@pytest.mark.parametrize(
    ("text", "options", "remedy"),
    [
        (RANDOM, ["--verify", "numeric"], "leave --verify numeric out"),
        (SEQUENCE, ["--verify", "numeric"], "leave --verify numeric out"),
        (RANDOM, ["--check", "1"], "leave --check out"),
        (SEQUENCE, ["--check", "1"], "leave --check out"),
    ],
)
def test_remedies_are_options_of_the_command(
    text: str, options: list[str], remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save(model(text), tmp_path, "in.onnx")
    assert optimize(source, tmp_path / "out.onnx", *options) == 1
    assert f"\n  try: {remedy}" in capsys.readouterr().err


def test_dumps_of_every_pass(source: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    assert optimize(source, tmp_path / "out.onnx", "--dump", str(dump), "--verify", "numeric") == 0
    names = sorted(path.name for path in dump.iterdir())
    assert len(names) % 2 == 0
    assert any(name.endswith("-cse-before.txt") for name in names)


def of(text: str, opset: int, ir_version: int, tmp_path: Path) -> Path:
    made = onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}]> {text}')
    return save(made, tmp_path, "in.onnx")


GELU = (
    "main (float[batch, 3] x) => (float[batch, 3] y) <float h = {0.5}, float o = {1}, float r = {1.4142135}> {"
    "  d = Div(x, r)  e = Erf(d)  a = Add(e, o)  m = Mul(x, a)  y = Mul(m, h) }"
)


def test_the_versions_of_the_input_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    source = of(GELU, 13, 7, tmp_path)
    assert optimize(source, out, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["opset"], facts["ir_version"]) == (13, 7)
    assert "written as parts, as opset 13 lacks them: gelu (1); --opset 20 has all" in facts["notes"]
    assert optimize(source, out, "--opset", "20") == 0
    assert operators(out) == ["Gelu"]
    assert onnx.load(out).ir_version == 9
    capsys.readouterr()
    assert optimize(source, out, "--ir", "10") == 0
    assert onnx.load(out).ir_version == 10
    assert "lacks something" not in capsys.readouterr().out
    assert optimize(source, out, "--opset", "20", "--ir", "8") == 1
    assert "IR 8 is too old for opset 20" in capsys.readouterr().err


def test_dims_are_fixed_in_the_output(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert optimize(of(GELU, 20, 9, tmp_path), out, "--dim", "batch=2", "--check", "1") == 0
    written = onnx.load(out).graph
    for value in (*written.input, *written.output):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 3]


def test_metadata_is_kept_and_our_own_added(tmp_path: Path) -> None:
    source = of(GELU, 20, 9, tmp_path)
    made = onnx.load(source)
    made.producer_name = "maker"
    made.metadata_props.add(key="author", value="me")
    onnx.save(made, source)
    assert optimize(source, tmp_path / "out.onnx") == 0
    written = onnx.load(tmp_path / "out.onnx")
    facts = {entry.key: entry.value for entry in written.metadata_props}
    assert written.producer_name == "maker"
    assert facts["author"] == "me"
    assert facts["capgraph.target"] == "standard"
    assert facts["capgraph.passes"].startswith("eliminate-dead-code")
    assert facts["capgraph.version"]


def test_external_data_stays_external(tmp_path: Path) -> None:
    made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "w"))
    onnx.save(made, tmp_path / "in.onnx", save_as_external_data=True, location="in.data", size_threshold=0)
    assert optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", "--check", "1") == 0
    assert len(list(tmp_path.glob("out.onnx.*.data"))) == 1


@pytest.mark.parametrize("options", [[], ["--check", "1", "--session-options"]])
def test_external_data_keeps_its_file_where_nothing_else_has_the_name(tmp_path: Path, options: list[str]) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(300, dtype=np.float32), "w"))
    onnx.save(made, inside / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    before = (inside / "w.data").read_bytes()
    for out, folder, names in (("m.onnx", outside, ["w.data"]), ("n.onnx", inside, ["n.onnx.*.data", "w.data"])):
        assert optimize(inside / "m.onnx", folder / out, *options) == 0
        assert [path.match(name) for path, name in zip(sorted(folder.glob("*.data")), names, strict=True)] == [
            True
        ] * len(names)
        assert onnx.numpy_helper.to_array(onnx.load(folder / out).graph.initializer[0])[299] == 299
        assert (inside / "w.data").read_bytes() == before


def test_inputs_and_tolerances_of_the_check(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((7, 3), np.float32))
    given = ["--check", "1", "--json", "--input", f"x={tmp_path / 'x.npy'}", "--rtol", "0.5", "--atol", "0.1"]
    assert optimize(source, tmp_path / "out.onnx", *given) == 0
    check = json.loads(capsys.readouterr().out)["check"]
    assert check["sizes"] == {"batch": 7}
    assert check["outputs"][0]["allowed"] == 0.5
    with pytest.raises(SystemExit):
        optimize(source, tmp_path / "out.onnx", "--rtol", "-1")
