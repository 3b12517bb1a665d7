from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.inputs import draw, gather_inputs
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.errors import CapgraphError, InputError, ResourceError, UnsupportedError
from capgraph.ir.evaluate import match_type
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, OptionalType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image


def graph_of(**inputs: str) -> Graph:
    b = Builder()
    for name, ty in inputs.items():
        b.input(name, ty)
    return b.graph


def save_array(folder: Path, array: Any, name: str = "x.npy") -> str:
    path = folder / name
    np.save(path, array)
    return str(path)


def save_picture(folder: Path, pixels: Any, name: str = "x.png") -> str:
    path = folder / name
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return str(path)


# ---- random


@given(st.sampled_from(list(DType)), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 99))
def test_draws_have_the_type_asked_for(dtype: DType, shape: list[int], seed: int) -> None:
    drawn = draw(dtype, tuple(shape), np.random.default_rng(seed))
    assert match_type(TensorType(dtype, tuple(shape)), drawn, {}) == ""
    if dtype.is_integer or dtype is DType.BOOL:
        assert {int(item) for item in drawn.reshape(-1)} <= {0, 1}


def test_a_seed_gives_the_same_numbers_whatever_else_is_drawn() -> None:
    alone = gather_inputs(graph_of(x="f32[5]"), {}, {}, seed=1)
    among = gather_inputs(graph_of(a="f32[5]", x="f32[5]"), {}, {}, seed=1)
    other = gather_inputs(graph_of(x="f32[5]"), {}, {}, seed=2)
    assert np.array_equal(alone["x"].value, among["x"].value)
    assert not np.array_equal(among["a"].value, among["x"].value)
    assert not np.array_equal(alone["x"].value, other["x"].value)


def test_symbols_are_given_assumed_or_come_from_files(tmp_path: Path) -> None:
    graph = graph_of(ids="i64[batch, length]", mask="i64[batch, length, other]")
    path = save_array(tmp_path, np.zeros((2, 7), np.int64))
    found = gather_inputs(graph, {"ids": path, "mask": "random"}, {}, seed=0)
    assert found["mask"].value.shape == (2, 7, 1)
    assert "other taken as 1 (--dim other=N)" in found["mask"].source
    assert gather_inputs(graph, {}, {"batch": 3, "length": 2, "other": 4}, 0)["mask"].value.shape == (3, 2, 4)


def test_inputs_with_defaults_are_left_to_the_model() -> None:
    graph = graph_of(x="f32[2]", w="f32[2]")
    graph.set_default(graph.value("w"), Constant(np.zeros(2, np.float32)))
    assert list(gather_inputs(graph, {}, {}, 0)) == ["x"]
    assert list(gather_inputs(graph, {"w": "random"}, {}, 0)) == ["x", "w"]


def test_what_cannot_be_drawn_is_named() -> None:
    graph = Graph()
    graph.add_input("x", OptionalType(TensorType(DType.F32, (2,))))
    with pytest.raises(UnsupportedError, match="'x' of type optional"):
        gather_inputs(graph, {}, {}, 0)


def test_sizes_below_zero_are_refused() -> None:
    with pytest.raises(InputError, match=r"would have shape \[-2\]"):
        gather_inputs(graph_of(x="f32[N - 3]"), {}, {"N": 1}, 0)


def test_sizes_come_from_the_caller_then_files_then_what_is_left(tmp_path: Path) -> None:
    graph = graph_of(x="f32[N, M]", y="f32[N, M, K, L, R]")
    x = save_array(tmp_path, np.zeros((2, 5), np.float32))
    found = gather_inputs(graph, {"x": x}, {"K": 3}, 0, otherwise={"N": 7, "K": 7, "L": 4})
    assert found["y"].value.shape == (2, 5, 3, 4, 1)


# ---- arrays


def test_arrays_come_from_files(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = gather_inputs(graph_of(x="f32[N, 3]"), {"x": save_array(tmp_path, x)}, {}, 0)["x"]
    assert np.array_equal(found.value, x)
    assert found.source.endswith("x.npy")


def test_small_floats_come_back_from_files(tmp_path: Path) -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    found = gather_inputs(graph_of(x="bf16[2]"), {"x": save_array(tmp_path, x)}, {}, 0)["x"].value
    assert found.dtype == ml_dtypes.bfloat16
    assert np.array_equal(found, x)


def test_strings_come_from_fixed_width_text(tmp_path: Path) -> None:
    path = save_array(tmp_path, np.array(["a", "bc"]))
    assert gather_inputs(graph_of(x="string[2]"), {"x": path}, {}, 0)["x"].value.tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "cannot be read"), (b"\x93NUMPY\x01\x00", "cannot be read"), (b"no array", "cannot be read")],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        gather_inputs(graph_of(x="f32[2]"), {"x": str(path)}, {}, 0)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        gather_inputs(graph_of(x="string[1]"), {"x": str(path)}, {}, 0)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    path = save_array(tmp_path, np.zeros((2, 2), np.float32))
    for graph, sources, sizes, message in (
        (graph_of(x="f32[3, 2]"), {"x": path}, {}, r"got shape \[2, 2\] instead of f32\[3, 2\]"),
        (graph_of(x="f32[N, 2]"), {"x": path}, {"N": 3}, "with N=3"),
        (graph_of(x="i64[2, 2]"), {"x": path}, {}, "got float32 instead of i64"),
        (graph_of(x="f32[2, 2]"), {"y": path}, {}, "no input 'y'"),
        (graph_of(x="f32[N]"), {}, {"M": 2}, r"no dim 'M'\n.*N"),
        (graph_of(x="f32[2]"), {"x": "gone.npy"}, {}, "no file gone.npy"),
        (graph_of(x="f32[2]"), {"x": "n" * 300 + ".npy"}, {}, "cannot be read: File name too long"),
        (graph_of(x="f32[2]"), {"x": __file__}, {}, "neither a .npy file nor a picture"),
    ):
        with pytest.raises(InputError, match=message):
            gather_inputs(graph, sources, sizes, 0)


# ---- pictures

RED_BLUE = np.zeros((6, 8, 3), np.uint8)
RED_BLUE[:, :4, 0] = 255  # left half red
RED_BLUE[:, 4:, 2] = 255  # right half blue


@pytest.mark.parametrize(
    ("ty", "red_at", "words"),
    [
        ("f32[1, 3, 6, 8]", (0, 0), "8 x 6, NCHW, pixels divided by 255"),
        ("f32[N, 3, 6, 8]", (0, 0), "8 x 6, NCHW"),
        ("f32[N, C, H, W]", (0, 0), "8 x 6, NCHW"),
        ("f16[3, 6, 8]", (0,), "8 x 6, CHW"),
    ],
)
def test_pictures_with_channels_first(tmp_path: Path, ty: str, red_at: tuple[int, ...], words: str) -> None:
    found = gather_inputs(graph_of(x=ty), {"x": save_picture(tmp_path, RED_BLUE)}, {}, 0)["x"]
    red = found.value[red_at]
    assert red.shape == (6, 8)
    assert np.all(red[:, :4] == 1)
    assert np.all(red[:, 4:] == 0)
    assert words in found.source


@pytest.mark.parametrize(("ty", "top"), [("u8[1, 6, 8, 3]", 255), ("f32[6, 8, 3]", 1)])
def test_pictures_with_channels_last(tmp_path: Path, ty: str, top: int) -> None:
    found = gather_inputs(graph_of(x=ty), {"x": save_picture(tmp_path, RED_BLUE)}, {}, 0)["x"]
    assert found.value[..., 0, 0, :].reshape(-1).tolist() == [top, 0, 0]
    assert "HWC" in found.source


def test_a_batch_holds_the_picture_several_times(tmp_path: Path) -> None:
    path = save_picture(tmp_path, RED_BLUE)
    value = gather_inputs(graph_of(x="f32[N, 3, 4, 8]"), {"x": path}, {"N": 3}, 0)["x"].value
    assert value.shape == (3, 3, 4, 8)
    assert np.array_equal(value[0], value[2])


def test_pictures_are_resized_and_cropped_in_the_middle(tmp_path: Path) -> None:
    path = save_picture(tmp_path, RED_BLUE.repeat(10, 0).repeat(10, 1), "x.bmp")
    found = gather_inputs(graph_of(x="f32[1, 3, 4, 4]"), {"x": path}, {}, 0)["x"]
    assert found.value[0, 0, 0].tolist() == pytest.approx([1, 1, 0, 0], abs=0.1)
    assert "resized and cropped to 4 x 4" in found.source


@pytest.mark.parametrize("ty", ["f32[4, 8]", "f32[1, 1, 4, 8]"])
def test_gray_pictures(tmp_path: Path, ty: str) -> None:
    path = save_picture(tmp_path, np.full((4, 8), 51))
    assert np.allclose(gather_inputs(graph_of(x=ty), {"x": path}, {}, 0)["x"].value, 0.2)


def test_transparency_is_a_channel_where_there_are_four(tmp_path: Path) -> None:
    path = save_picture(tmp_path, np.full((4, 8, 4), 255))
    assert gather_inputs(graph_of(x="u8[1, 4, 4, 8]"), {"x": path}, {}, 0)["x"].value.shape == (1, 4, 4, 8)


@pytest.mark.parametrize("ty", ["f32[5]", "f32[1, 7, 4, 8]", "i64[1, 3, 4, 8]", "f32[1, 1, 3, 4, 8]"])
def test_inputs_that_are_no_pictures(tmp_path: Path, ty: str) -> None:
    with pytest.raises(CapgraphError, match="picture"):
        gather_inputs(graph_of(x=ty), {"x": save_picture(tmp_path, RED_BLUE)}, {}, 0)


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n, but no more")
    with pytest.raises(InputError, match="cannot be read as a picture"):
        gather_inputs(graph_of(x="f32[1, 3, 4, 8]"), {"x": str(path)}, {}, 0)


@pytest.mark.parametrize(
    ("ty", "text", "value"),
    [
        ("i64[]", "16000", 16000),
        ("i64[1]", "-3", -3),
        ("u64[]", str(2**64 - 1), 2**64 - 1),
        ("f32[]", "0.5", 0.5),
        ("f32[B]", "3", 3.0),
        ("bf16[1, 1]", "1e3", 1000.0),
        ("bool[]", "true", True),
        ("bool[]", "0", False),
        ("f32[]", "-inf", -np.inf),
    ],
)
def test_a_scalar_takes_a_number(ty: str, text: str, value: Any) -> None:
    graph = graph_of(sr=ty)
    found = gather_inputs(graph, {"sr": text}, {}, 0)["sr"].value
    assert found.item() == value
    assert not match_type(graph.inputs[0].type, found, {})


@pytest.mark.parametrize(
    ("ty", "text"),
    [("i64[]", "0.5"), ("i8[]", "300"), ("u8[]", "-1"), ("i64[]", "nan"), ("f32[]", "1e60"), ("i64[]", str(2**70))],
)
def test_a_number_that_the_dtype_does_not_hold_is_refused(ty: str, text: str) -> None:
    with pytest.raises(InputError, match=r"input 'sr'.* is no "):
        gather_inputs(graph_of(sr=ty), {"sr": text}, {}, 0)


def test_a_number_for_an_array_is_refused() -> None:
    with pytest.raises(InputError, match="is no single number"):
        gather_inputs(graph_of(x="f32[2]"), {"x": "3"}, {}, 0)


def test_memory_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("capgraph.inputs.draw", refused)
    with pytest.raises(ResourceError, match=r"input 'x' needs 12 B, which cannot be had"):
        gather_inputs(graph_of(x="f32[3]"), {}, {}, seed=0)
