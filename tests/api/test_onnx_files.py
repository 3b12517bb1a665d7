from pathlib import Path

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.cli import main
from capgraph.cli.files import read_onnx_file, refuse_harming, refuse_overwriting

from tests.api.models import affine, model, save, save_with_data

PLACES = ("initializer", "attribute", "function")

WRITING: dict[str, tuple[str, list[str]]] = {
    "optimize": ("w.data", ["optimize", "MODEL", "-o", "FOLDER/w.data"]),
    "optimize --session-options": (
        "out.onnx.options.json",
        ["optimize", "MODEL", "-o", "FOLDER/out.onnx", "--session-options"],
    ),
    "optimize --dump": ("01-before.txt", ["optimize", "MODEL", "-o", "FOLDER/out.onnx", "--dump", "FOLDER"]),
    "compare": ("w.data", ["compare", "MODEL", "--executors", "eager", "--runs", "1", "--html", "FOLDER/w.data"]),
    "run": ("y.npy", ["run", "MODEL", "--executor", "eager", "--output", "FOLDER"]),
    "bisect": ("after.txt", ["bisect", "MODEL", "--output", "FOLDER"]),
    "tuning-cache": ("w.data", ["tuning-cache", "--export", "FOLDER/w.data"]),
}
"""Commands that write a file, by name: how the file of the weights is called, and arguments that would replace it."""


def test_a_file_and_what_it_holds(tmp_path: Path) -> None:
    found = read_onnx_file(save(affine(), tmp_path))
    assert found.operators == {"Mul": 1, "Add": 1}
    assert found.files == (tmp_path / "model.onnx",)
    assert [value.name for value in found.graph.inputs] == ["x"]


def test_files_of_external_data_belong_to_it(tmp_path: Path) -> None:
    made = model("main (float[300] x) => (float[300] y) <float[300] w> { y = Add(x, w) }")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "w"))
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.data", size_threshold=0)
    found = read_onnx_file(path)
    assert found.files == (path, tmp_path / "w.data")
    with pytest.raises(capgraph.InputError, match="is the model itself"):
        refuse_overwriting(found.files, tmp_path / "w.data")
    refuse_overwriting(found.files, tmp_path / "new.onnx")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", WRITING)
def test_no_command_overwrites_the_weights(
    command: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location, arguments = WRITING[command]
    path = save_with_data(tmp_path, place, location)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    given = [each.replace("MODEL", str(path)).replace("FOLDER", str(tmp_path)) for each in arguments]
    assert main(given) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / location} is " in said
    assert "Traceback" not in said
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("place", PLACES)
def test_a_link_to_weights_is_refused_as_they_are(place: str, tmp_path: Path) -> None:
    path = save_with_data(tmp_path, place, "w.data")
    (tmp_path / "link").symlink_to("w.data")
    (tmp_path / "hard").hardlink_to(tmp_path / "w.data")
    (tmp_path / "other").touch()
    for name in ("link", "hard", "model.onnx"):
        with pytest.raises(capgraph.InputError, match="is the model itself"):
            refuse_harming(path, [tmp_path / "other", tmp_path / name])
    refuse_harming(path, [tmp_path / "other", tmp_path / "new"])


def test_a_model_is_read_only_where_a_target_is_there(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    refuse_harming(path, [tmp_path / "new"])
    (tmp_path / "old").touch()
    with pytest.raises(capgraph.ModelError):
        refuse_harming(path, [tmp_path / "old"])
