import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from capgraph.ir.builder import Builder
from capgraph.ir.errors import InputError, ModelError
from capgraph.sources import load_model

from tests.api.models import affine, save


def test_paths_bytes_and_protos_give_the_same_graph(tmp_path: Path) -> None:
    path = save(affine(), tmp_path)
    sources: list[Any] = [path, str(path), path.read_bytes(), affine()]
    assert {str(list(load_model(source).graph.nodes)) for source in sources} == {
        str(list(load_model(affine()).graph.nodes))
    }


def test_a_graph_is_copied() -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    graph = b.finish({"y": b.op("exp", x)})
    loaded = load_model(graph).graph
    assert loaded is not graph
    assert [node.op for node in loaded.nodes] == [node.op for node in graph.nodes]


@pytest.mark.parametrize("source", [b"", b"not a model", bytes(range(256)) * 9])
def test_bytes_that_are_no_model(source: bytes) -> None:
    with pytest.raises(ModelError):
        load_model(source)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        load_model(tmp_path / "missing.onnx")


@pytest.mark.parametrize("source", [None, 3, np.zeros(2), [affine()], onnx.GraphProto(), torch.ones(2)])
def test_what_is_no_model_at_all(source: Any) -> None:
    with pytest.raises(InputError, match="a model cannot be a"):
        load_model(source)


def test_pytorch_modules_need_example_inputs() -> None:
    with pytest.raises(InputError, match="Identity is a PyTorch module, which is traced on example inputs"):
        load_model(torch.nn.Identity())


def test_without_onnx_the_command_to_install_it_is_named(tmp_path: Path) -> None:
    path = save(affine(), tmp_path)
    program = f"""
import sys
sys.modules["onnx"] = None
import capgraph
try:
    capgraph.optimize({str(path)!r})
except capgraph.MissingPackageError as error:
    print(error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == 'pip install "capgraph[onnx]"'


def test_the_users_proto_is_left_alone() -> None:
    given = affine()
    before = onnx.ModelProto.FromString(given.SerializeToString())
    load_model(given)
    assert given == before
