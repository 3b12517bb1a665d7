import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.cli import main
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.planning import specialize

from tests.api.models import model, save
from tests.passes.planted import WrongAlgebra

MODEL = (
    "main (float[batch, 3] x) => (float[batch, 3] y) <float four = {4}, float one = {-1}> {"
    "  a = Exp(x)  b = Div(a, one)  c = Div(b, four)  y = Tanh(c) }"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(save(model(MODEL), tmp_path))


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.base.level_pipeline", lambda _: Pipeline(((WrongAlgebra(),),)))


def test_a_right_model_has_no_culprit(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", path, "--passes", "canonicalize,cse", "--draws", "1"]) == 0
    text = capsys.readouterr().out
    assert text == "no rewrite of canonicalize,cse changes what the model means on 1 drawn input\n"


@pytest.mark.usefixtures("_planted")
def test_the_culprit_as_text(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", path, "--output", str(tmp_path / "found")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("pass wrong-algebra, rule divide-as-multiply, rewrite 2 of the pipeline\nat %c = div(")
    assert "instead of" in text
    before = parse((tmp_path / "found" / "before.txt").read_text())
    after = parse((tmp_path / "found" / "after.txt").read_text())
    assert [node.op.name for node in before.nodes] == ["constant", "div"]
    assert [node.op.name for node in after.nodes] == ["constant", "mul"]


@pytest.mark.usefixtures("_planted")
def test_the_culprit_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", path, "--json", "--dim", "batch=2"]) == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert (found["pass"], found["rewrite"], found["number"]) == ("wrong-algebra", "divide-as-multiply", 2)
    assert "div(" in found["before"]
    assert "mul(" in found["after"]


def test_a_file_decides_the_sizes_that_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "main (float[batch, 3] x, float[length, 3] b) => (float[batch, 3] y) { s = ReduceSum(b)  y = Add(x, s) }"
    path, file = str(save(model(text), tmp_path)), tmp_path / "x.npy"
    np.save(file, np.ones((7, 3), np.float32))
    assert main(["bisect", path, "--input", f"x={file}"]) == 0
    assert "changes what the model means" in capsys.readouterr().out
    assert main(["bisect", path, "--input", f"x={file}", "--dim", "batch=2"]) == 1
    assert "got shape [7, 3] instead of f32[batch, 3] with batch=2" in capsys.readouterr().err


def test_sizes_that_the_model_runs_on_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "main (float[n, m] x) => (float[a, 12] y) <int64[2] s = {-1, 12}> { e = Exp(x)  y = Reshape(e, s) }"
    assert main(["bisect", str(save(model(text), tmp_path))]) == 0
    assert "changes what the model means" in capsys.readouterr().out


def test_a_model_that_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = save(model("main (float[4] x) => (float[4] y) { r = RandomNormalLike(x)  y = Add(x, r) }"), tmp_path)
    assert main(["bisect", str(random)]) == 1
    said = capsys.readouterr().err
    assert "random ops cannot be checked numerically" in said
    assert "--input NAME=SOURCE" in said


@pytest.fixture
def _wrong_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = specialize.bound_attrs

    def wrong(*given: Any) -> dict[str, Any]:
        attrs = right(*given)
        return {**attrs, "value": attrs["value"] + 1} if isinstance(attrs.get("value"), int) else attrs

    monkeypatch.setattr(specialize, "bound_attrs", wrong)


COUNTED = (
    "main (float[batch, 3] x) => (float[batch, 3] y) <int64 first = {0}> {"
    "  s = Shape(x)  n = Gather(s, first)  f = Cast<to=1>(n)  e = Exp(x)  y = Mul(e, f) }"
)


@pytest.mark.usefixtures("_wrong_sizes")
@pytest.mark.parametrize("device", ["host", "cuda"])
def test_the_passes_to_a_plan(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, dump = str(save(model(COUNTED), tmp_path)), tmp_path / "passes"
    planned = ["--executor", "graph", "--device", device, "--sizes", "batch=4", "--without", "mask-padding"]
    given = ["bisect", path, *planned, "--dump", str(dump)]
    assert main([*given, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["found"]["pass"], said["found"]["rewrite"]) == ("specialize{batch=4}", "bind-sizes")
    assert "dim()" in said["found"]["before"]
    assert any(file.name.endswith("specialize-after.txt") for file in dump.iterdir())
    assert main([*given, "--without", "specialize"]) == 0
    assert capsys.readouterr().out.startswith("no rewrite of ")


def test_options_of_plans(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", path, "--sizes", "batch=4"]) == 1
    assert "--executor graph" in capsys.readouterr().err
    assert main(["bisect", path, "--executor", "graph", "--sizes", "nope=4"]) == 1
    assert "the sizes are: batch" in capsys.readouterr().err
    assert main(["bisect", path, "--executor", "graph", "--device", "tpu"]) == 1
    assert "device='tpu' is not known" in capsys.readouterr().err
