import json
from pathlib import Path

import onnx
import pytest
from capgraph.cli import main
from capgraph.ir.equality import first_difference
from capgraph.ir.text.parser import parse
from capgraph.sources import load_model

from tests.api.models import affine, model, save


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(save(affine(), tmp_path))


def test_the_text_form_reads_back(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path]) == 0
    assert first_difference(parse(capsys.readouterr().out), load_model(path).graph) is None


def test_origins_are_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = affine()
    made.graph.node[0].name = "scale_node"
    path = str(save(made, tmp_path))
    assert main(["show", path]) == 0
    assert "scale_node" not in capsys.readouterr().out
    assert main(["show", path, "--origins"]) == 0
    assert 'loc("scale_node")' in capsys.readouterr().out


def test_json_holds_the_text(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "main"
    assert found["text"].startswith("graph @main(%x: f32[batch, 3])")


def test_statistics_by_op(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path, "--stats"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["graph", "main:", "4", "nodes,"]
    assert ["add", "1", "3*batch", "24*batch"] in [line[:2] + line[2:4] for line in lines] or ["add", "1"] in [
        line[:2] for line in lines
    ]
    assert lines[-1][0] == "total"


def test_statistics_with_sizes_are_numbers(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path, "--stats", "--json", "--dim", "batch=2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["flops"] == 12
    assert {row["op"]: (row["nodes"], row["flops"]) for row in found["ops"]}["mul"] == (1, 6)
    assert found["symbols"] == ["batch"]


@pytest.mark.parametrize("options", [[], ["--stats"]])
def test_dims_that_the_model_does_not_have(path: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path, "--dim", "bacth=2", *options]) == 1
    assert "the model has no dim 'bacth'\n  try: one of batch" in capsys.readouterr().err


def test_foreign_ops_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model("main (float[2] x) => (float[2] y) <float[2] b> { b = com.example.Mystery(x)  y = Neg(b) }")
    assert main(["show", str(save(made, tmp_path)), "--stats"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Mystery" in line]
    assert line.endswith("foreign")


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "missing.onnx"]) == 1
    assert "capgraph show: ModelError" in capsys.readouterr().err


def test_a_model_with_a_cycle_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = affine()
    made.graph.node[0].input[0] = made.graph.node[-1].output[0]
    onnx.save(made, tmp_path / "cycle.onnx")
    assert main(["show", str(tmp_path / "cycle.onnx")]) == 1
    assert "form a cycle" in capsys.readouterr().err


def test_a_plan_is_shown_for_the_sizes_and_the_device(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", path, "--plan", "--dim", "batch=5"]) == 0
    on_host = capsys.readouterr().out
    assert on_host.startswith("plan @main at batch=5: arena of ")
    assert " by " not in on_host
    assert main(["show", path, "--plan", "--device", "cuda", "--json"]) == 0
    assert "by pointwise, host" in json.loads(capsys.readouterr().out)["text"]
