import json
from pathlib import Path

import onnx
import pytest
from capgraph.frontends.onnx.files.loading import load_proto, opset_versions
from capgraph.ir.errors import ModelError, UnsupportedError
from onnx import ModelProto

from tests.frontends.onnx.sample_models import convolutions, parsed

SMALL = "net (float[N] x) => (float[N] y) { y = Neg(x) }"


def test_a_path_gives_the_model_and_its_folder(tmp_path: Path):
    path = tmp_path / "m.onnx"
    onnx.save(convolutions(), path)
    for given in (path, str(path)):
        assert load_proto(given) == (convolutions(), tmp_path)


def test_bytes_and_protos_have_no_folder():
    assert load_proto(convolutions().SerializeToString()) == (convolutions(), None)
    assert load_proto(convolutions()) == (convolutions(), None)


@pytest.mark.parametrize("suffix", [".json", ".textproto", ".onnxtxt"])
def test_text_forms_are_read(tmp_path: Path, suffix: str):
    path = tmp_path / f"m{suffix}"
    onnx.save(parsed(SMALL), path)
    assert load_proto(path)[0] == parsed(SMALL)


@pytest.mark.parametrize("suffix", [".onnx", ".json", ".textproto", ".onnxtxt"])
def test_a_file_that_is_no_model(tmp_path: Path, suffix: str):
    path = tmp_path / f"m{suffix}"
    path.write_text("this is no model {")
    with pytest.raises(ModelError, match=rf"m\{suffix}"):
        load_proto(path)


def test_json_that_is_no_model(tmp_path: Path):
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"graph": 7}))
    with pytest.raises(ModelError, match="cannot be read"):
        load_proto(path)


@pytest.mark.parametrize("name", ["nothing.onnx", "."])
def test_a_path_without_a_file(tmp_path: Path, name: str):
    with pytest.raises(ModelError, match="no model file"):
        load_proto(tmp_path / name)


@pytest.mark.parametrize("model", [b"", ModelProto(), ModelProto(ir_version=8)])
def test_a_model_without_a_graph(model):
    with pytest.raises(ModelError, match="holds no graph"):
        load_proto(model)


def test_a_truncated_file(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(convolutions().SerializeToString()[:-9])
    with pytest.raises(ModelError, match=r"m\.onnx"):
        load_proto(path)


def test_an_opset_that_the_installed_onnx_does_not_know():
    model = parsed(SMALL)
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    with pytest.raises(UnsupportedError, match="upgrade"):
        load_proto(model)


def test_opset_versions_by_domain():
    model = parsed('<ir_version: 8, opset_import: ["ai.onnx": 17, "com.microsoft": 1]>' + SMALL)
    assert opset_versions(model) == {"": 17, "com.microsoft": 1}
