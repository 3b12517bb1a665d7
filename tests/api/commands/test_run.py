import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.cli import main
from PIL import Image

from tests.api.models import affine, picture_model, save, with_default, with_foreign_node
from tests.api.models import model as graph_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save(affine(), tmp_path))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["run", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_table_of_outputs(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([[0, 1, 2]], np.float32))
    assert main(["run", model, "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == f"input x: f32[1, 3], {tmp_path / 'x.npy'}"
    assert lines[2].split() == ["output", "type", "min", "mean", "max", "first"]
    assert lines[4].split() == ["y", "f32[1,", "3]", "1", "3", "5", "1,", "3,", "5"]
    assert lines[-1].startswith("imported in ")
    assert lines[-1].endswith("(ort on host)")
    assert captured.err == ""


def test_the_same_as_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, model, "--dim", "batch=2", "--repeat", "3")
    assert found["inputs"] == [{"name": "x", "type": "f32[2, 3]", "source": "random, standard normal"}]
    assert found["outputs"][0]["type"] == "f32[2, 3]"
    assert found["runs"] == 3
    assert found["seconds"]["run"] > 0
    assert (found["executor"], found["device"], found["files"]) == ("ort", "host", [])


def test_seeds_choose_the_random_numbers(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run_json(capsys, model, "--seed", seed)["outputs"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_sizes_that_nobody_gave_are_said(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "batch taken as 1 (--dim batch=N)" in run_json(capsys, model)["inputs"][0]["source"]


def test_sizes_are_what_nodes_ask_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = graph_model("main (float[n] x) => (float[q, 8] y) <int64[2] s = {-1, 8}> { y = Reshape(x, s) }")
    assert "n taken as 8 (--dim n=N)" in run_json(capsys, str(save(rows, tmp_path)))["inputs"][0]["source"]


def test_sizes_that_a_model_cannot_run_on_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = graph_model("main (float[n] x) => (float[q, 8] y) <int64[2] s = {-1, 8}> { y = Reshape(x, s) }")
    path = str(save(rows, tmp_path))
    assert main(["run", path, "--dim", "n=9"]) != 0
    error = capsys.readouterr().err
    assert "cannot run on drawn inputs with n=9" in error
    assert "--dim NAME=N" in error


def test_outputs_are_written(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--output", str(tmp_path / "out"), "--input", "x=random"]) == 0
    path = tmp_path / "out" / "y.npy"
    assert f"wrote {path}" in capsys.readouterr().out
    assert np.load(path).shape == (1, 3)


def test_a_picture_is_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (60, 40), (51, 0, 0)).save(tmp_path / "red.jpg", quality=100)
    model = str(save(picture_model(3), tmp_path))
    found = run_json(capsys, model, "--input", f"picture={tmp_path / 'red.jpg'}", "--dim", "batch=2")
    assert found["inputs"][0]["type"] == "f32[2, 3, 4, 6]"
    assert "resized and cropped to 6 x 4, NCHW, pixels divided by 255" in found["inputs"][0]["source"]
    assert found["outputs"][0]["max"] == pytest.approx(0.2, abs=0.01)


def test_inputs_with_defaults_need_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each["name"] for each in run_json(capsys, str(save(with_default(), tmp_path)))["inputs"]] == ["x"]


def test_explain_is_shown_when_asked_for(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--explain"]) == 0
    assert "foreign ops: none" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "z=random"], "InputError: the model has no input 'z'"),
        (["--input", "x=gone.npy"], "InputError: input 'x': there is no file gone.npy"),
        (["--dim", "length=3"], "InputError: the model has no dim 'length'"),
        (["--executor", "gpu"], "UnsupportedError: there is no executor 'gpu'"),
        (["--dim", "batch=99999999999999999999"], "ResourceError: input 'x' needs 1.04e+03 EiB"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", model, *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("capgraph run: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_an_op_that_nothing_can_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(save(with_foreign_node(), tmp_path))]) == 1
    assert "com.example.Mystery" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff\x01broken"])
def test_a_damaged_model_is_one_message(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    assert main(["run", str(path)]) == 1
    assert capsys.readouterr().err.startswith("capgraph run: ModelError: ")
