import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting import data_files, saving
from capgraph.frontends.onnx.exporting.saving import save_model
from capgraph.frontends.onnx.files.loading import external_tensors
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.constant import Constant
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import InputError, ResourceError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.frontends.onnx.sample_models import ALL


def weights(*contents: np.ndarray) -> Graph:
    """A graph that returns its weights."""
    graph = Graph("net")
    graph.set_outputs([graph.append(native("constant"), (), {"value": Constant(c)}).output for c in contents])
    return graph


LARGE = weights(
    np.arange(5_000, dtype=np.float32),
    np.arange(3, dtype=np.int64),
    np.arange(4_000).astype(np.int8).reshape(2, 2_000).T,
)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("external_over", [0, 10**9])
def test_a_saved_model_comes_back(tmp_path: Path, make, external_over: int):
    graph = import_model(make()).graph
    save_model(graph, tmp_path / "m.onnx", external_over=external_over)
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    assert_equal(graph, import_model(tmp_path / "m.onnx").graph)


def test_small_models_are_one_file(tmp_path: Path):
    written = save_model(LARGE, tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert onnx.load(tmp_path / "m.onnx") == written


def test_large_weights_go_beside_the_model(tmp_path: Path):
    save_model(LARGE, tmp_path / "m.onnx", external_over=1_000)
    model, data = sorted(tmp_path.iterdir(), key=lambda path: path.suffix, reverse=True)
    assert model.name == "m.onnx"
    assert data.name.startswith("m.onnx.")
    assert model.stat().st_size < 1_000
    outputs = import_model(model).graph.outputs
    for value, kept in zip(outputs, LARGE.outputs, strict=True):
        assert value.producer is not None
        assert kept.producer is not None
        assert value.producer.attrs["value"] == kept.producer.attrs["value"]


def test_external_tensors_start_at_pages(tmp_path: Path):
    model = save_model(LARGE, tmp_path / "m.onnx", external_over=1_000)
    entries = [{e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data]
    assert len(entries) == 2
    assert all(int(entry["offset"]) % 4096 == 0 for entry in entries)


def test_onnx_runtime_reads_external_data(tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    save_model(LARGE, tmp_path / "m.onnx", external_over=1_000)
    found = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"]).run(None, {})
    np.testing.assert_array_equal(found[0], np.arange(5_000, dtype=np.float32))


def test_weights_are_written_in_pieces(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(data_files, "_CHUNK_BYTES", 64)
    save_model(LARGE, tmp_path / "m.onnx", external_over=0)
    assert_equal(import_model(tmp_path / "m.onnx").graph, import_model(save_model(LARGE, tmp_path / "n.onnx")).graph)


def test_a_mapped_model_can_be_saved_over_itself(tmp_path: Path):
    path = tmp_path / "m.onnx"
    save_model(LARGE, path, external_over=1_000)
    graph = import_model(path).graph
    save_model(graph, path, external_over=1_000)
    assert_equal(graph, import_model(path).graph)


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch):
    path = tmp_path / "m.onnx"
    save_model(LARGE, path, external_over=1_000)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    other = weights(np.ones(9_000, np.float32))

    def no_space(_model: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "_write_model", no_space)
    with pytest.raises(ResourceError, match="No space left"):
        save_model(other, path, external_over=1_000)
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert before.items() <= kept.items()
    assert not any(name.endswith(".part") for name in kept)


def test_nothing_is_left_of_a_graph_that_cannot_be_exported(tmp_path: Path):
    def gone() -> np.ndarray:
        raise OSError("the file is gone")

    graph = Graph("net")
    lost = Constant.lazy(TensorType(DType.F32, (5_000,)), gone)
    graph.set_outputs([graph.append(native("constant"), (), {"value": lost}).output])
    for external_over in (0, 10**9):
        with pytest.raises(ResourceError, match="the file is gone"):
            save_model(graph, tmp_path / "m.onnx", external_over=external_over)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path):
    with pytest.raises(ResourceError, match="cannot be written"):
        save_model(LARGE, tmp_path / "nowhere" / "m.onnx")


def test_files_have_the_permissions_of_any_new_file(tmp_path: Path):
    (tmp_path / "plain").write_bytes(b"")
    save_model(LARGE, tmp_path / "m.onnx", external_over=1_000)
    assert len({stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("is_there", [False, True])
def test_a_link_is_followed_and_stays(tmp_path: Path, is_there: bool):
    folder, link = tmp_path / "folder", tmp_path / "link.onnx"
    folder.mkdir()
    if is_there:
        (folder / "m.onnx").write_bytes(b"earlier")
    link.symlink_to(folder / "m.onnx")
    save_model(LARGE, link, external_over=1_000)
    assert link.is_symlink()
    assert sorted(path.suffix for path in folder.iterdir()) == [".data", ".onnx"]
    assert_equal(import_model(folder / "m.onnx").graph, import_model(save_model(LARGE, tmp_path / "n.onnx")).graph)


def test_what_is_no_regular_file_stays(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="is a FIFO"):
        save_model(LARGE, tmp_path / "fifo")
    assert (tmp_path / "fifo").is_fifo()


def test_a_name_of_full_length(tmp_path: Path):
    path = tmp_path / f"{'n' * 250}.onnx"
    save_model(LARGE, path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with pytest.raises(InputError, match="File name too long"):
        save_model(LARGE, tmp_path / ("n" * 256))


def test_weights_lie_outside_where_they_came_so(tmp_path: Path):
    save_model(LARGE, tmp_path / "in.onnx", external_over=0)
    graph = import_model(tmp_path / "in.onnx").graph
    save_model(graph, tmp_path / "inside.onnx")
    save_model(graph, tmp_path / "out.onnx", keep_form=True)
    assert len(list(tmp_path.glob("inside.onnx*"))) == 1
    assert len(list(tmp_path.glob("out.onnx.*.data"))) == 1
    assert_equal(import_model(tmp_path / "out.onnx").graph, graph)


def test_a_file_that_weights_are_read_from_is_never_replaced(tmp_path: Path):
    save_model(LARGE, tmp_path / "in.onnx", external_over=0)
    graph = import_model(tmp_path / "in.onnx").graph
    (data,) = tmp_path.glob("*.data")
    before = data.read_bytes()
    (tmp_path / "link").symlink_to(data)
    for target in (data, tmp_path / "link"):
        with pytest.raises(InputError, match="holds weights of the model itself"):
            save_model(graph, target)
    assert data.read_bytes() == before
    save_model(graph, tmp_path / "in.onnx", external_over=0)
    assert_equal(import_model(tmp_path / "in.onnx").graph, LARGE)


def test_weights_of_subgraphs_lie_outside_too(tmp_path: Path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        either (bool c, float[n, 40] x) => (float[a, 40] y, float[40, 40] w) {
            y, w = If (c) <then_branch = scaled () => (float[a, 40] p, float[40, 40] v) {
                v = Identity(big)
                p = MatMul(x, v)
            }, else_branch = same () => (float[a, 40] q, float[40, 40] u) { q = Neg(x) u = Neg(big) }>
        }""")
    big = onnx.numpy_helper.from_array(np.arange(1600, dtype=np.float32).reshape(40, 40), "big")
    for attribute in model.graph.node[0].attribute:
        attribute.g.initializer.append(big)
    graph = import_model(model).graph
    written = save_model(graph, tmp_path / "m.onnx", external_over=0)
    assert not any(tensor.raw_data for tensor in external_tensors(written))
    assert len(list(external_tensors(written))) == 2
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    assert_equal(import_model(tmp_path / "m.onnx").graph, graph)


def placed(model: onnx.ModelProto) -> list[tuple[str, str]]:
    entries = ({entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer)
    return [(entry["location"], entry["offset"]) for entry in entries if entry]


def from_files(folder: Path, alignment: int, *, sizes: Sequence[int] = (400, 700, 300), files: int = 1) -> Graph:
    """A model whose weights lie in files, the last first, and the graph that it is."""
    folder.mkdir()
    model = save_model(weights(*[np.full(size, size, np.float32) for size in sizes]), folder / "m.onnx")
    end = [0] * files
    for number, tensor in reversed(list(enumerate(model.graph.initializer))):
        name = f"w{number % files}.bin"
        start = -(-end[number % files] // alignment) * alignment
        with (folder / name).open("ab") as file:
            file.write(bytes(start - end[number % files]) + tensor.raw_data)
        end[number % files] = start + len(tensor.raw_data)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", name), ("offset", start), ("length", len(tensor.raw_data))):
            tensor.external_data.add(key=key, value=str(value))
        tensor.ClearField("raw_data")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return import_model(folder / "m.onnx").graph


@pytest.mark.parametrize(("alignment", "files"), [(1, 1), (64, 1), (65536, 1), (64, 2), (1, 3)])
def test_weights_keep_their_files_and_places(tmp_path: Path, alignment: int, files: int):
    graph = from_files(tmp_path / "in", alignment, files=files)
    (tmp_path / "out").mkdir()
    written = save_model(graph, tmp_path / "out" / "m.onnx", keep_form=True)
    assert placed(written) == placed(onnx.load(tmp_path / "in" / "m.onnx", load_external_data=False))
    for number in range(files):
        name = f"w{number}.bin"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "in" / name).read_bytes()
    assert_equal(import_model(tmp_path / "out" / "m.onnx").graph, graph)
    again = save_model(graph, tmp_path / "out" / "m.onnx", keep_form=True)
    assert placed(again) == placed(written)  # the same content may take its name again


def test_new_weights_follow_those_that_are_kept(tmp_path: Path):
    graph = from_files(tmp_path / "in", 64)
    first, *others = graph.outputs
    new = graph.append(native("constant"), (), {"value": Constant(np.ones(500, np.float32))}).output
    graph.set_outputs([*others, new])
    assert first.producer is not None
    graph.erase(first.producer)
    (tmp_path / "out").mkdir()
    written = save_model(graph, tmp_path / "out" / "m.onnx", keep_form=True)
    assert [name for name, _ in placed(written)] == ["w0.bin"] * len(placed(written))
    assert_equal(import_model(tmp_path / "out" / "m.onnx").graph, graph)


@pytest.mark.parametrize("name", ["w0.bin", "m.onnx"])
def test_what_has_the_name_already_is_left_alone(tmp_path: Path, name: str):
    graph = from_files(tmp_path / "in", 64)
    out = tmp_path / "out" / "w0.bin" if name == "m.onnx" else tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    if name == "w0.bin":
        (out.parent / name).write_bytes(b"another's")
    written = save_model(graph, out, keep_form=True)
    assert {location.startswith(f"{out.name}.") for location, _ in placed(written)} == {True}
    assert name == "m.onnx" or (out.parent / name).read_bytes() == b"another's"
    assert_equal(import_model(out).graph, graph)
