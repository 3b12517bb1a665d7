from pathlib import Path

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.onnx_files import read_onnx_file, refuse_overwriting

from tests.api.models import affine, model, save


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
