from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.cli.files import save_outputs, summarize
from capgraph.ir.errors import ResourceError


def test_numbers_are_summarized() -> None:
    found = summarize(np.array([[1, 2, 3], [4, 5, 9]], np.float32))
    assert found == {"type": "f32[2, 3]", "min": 1, "mean": 4, "max": 9, "not_finite": 0, "first": [1, 2, 3, 4]}


def test_what_is_not_finite_is_counted_apart() -> None:
    found = summarize(np.array([np.nan, 1, np.inf, 3], np.float32))
    assert (found["min"], found["mean"], found["max"], found["not_finite"]) == (1, 2, 3, 2)


@pytest.mark.parametrize(
    ("value", "ty"),
    [
        (np.zeros((0, 3), np.int64), "i64[0, 3]"),
        (np.array([np.nan], ml_dtypes.bfloat16), "bf16[1]"),
        (np.array(["a"], object), "string[1]"),
        (np.array([b"\xff"], object), "string[1]"),
        (np.array([1j], np.complex64), "c64[1]"),
        (None, "nothing"),
        ([np.zeros(1)], "sequence of 1"),
        ({}, "dict"),
    ],
)
def test_what_has_no_mean_has_a_type(value: Any, ty: str) -> None:
    found = summarize(value)
    assert found["type"] == ty
    assert found["mean"] is None


def test_booleans_count_as_0_and_1() -> None:
    assert summarize(np.array([True, False]))["mean"] == 0.5


def test_outputs_are_written_and_read_back(tmp_path: Path) -> None:
    outputs = {"y": np.arange(3), "s": np.array(["a", "bc"], object), "none": None}
    written = save_outputs(outputs, tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["y.npy", "s.npy"]
    assert np.load(written[0]).tolist() == [0, 1, 2]
    assert np.load(written[1]).tolist() == ["a", "bc"]


def test_a_map_is_written_as_its_keys_and_values(tmp_path: Path) -> None:
    written = save_outputs({"scores": [{"a": 0.25, "bc": 0.5}]}, tmp_path)
    assert [path.name for path in written] == ["scores_0_keys.npy", "scores_0_values.npy"]
    assert [np.load(path).tolist() for path in written] == [["a", "bc"], [0.25, 0.5]]


def test_names_stay_inside_the_folder_and_apart(tmp_path: Path) -> None:
    outputs: dict[str, Any] = {name: np.zeros(1) for name in ("../../escape", "/etc/x", "a/b", "a_b", "a:b", "", "..")}
    outputs["list"] = [np.zeros(1), np.zeros(2)]
    written = save_outputs(outputs, tmp_path)
    assert len(set(written)) == 9
    assert all(path.parent == tmp_path and path.is_file() for path in written)
    assert written[-2:] == [tmp_path / "list_0.npy", tmp_path / "list_1.npy"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"):
        save_outputs({"y": np.zeros(1)}, tmp_path / "file" / "below")
