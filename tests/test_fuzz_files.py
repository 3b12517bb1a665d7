"""Damaged files through every step: what fuzzing has found stays found."""

from pathlib import Path

import pytest

from tests.fuzz_files import EXECUTORS, FINE, outcome

FILES = sorted((Path(__file__).parent / "damaged_files").glob("*.onnx"))
EXPECTED = {
    "attention-of-rank-2": {"ModelError"},
    "attention-without-heads": {"ModelError"},
    "bytes-that-are-no-picture": {"ExecutionError"},
    "convolution-without-channels": {"ExecutionError"},
    "graph-name-that-is-no-utf-8": {FINE},
    "heads-that-keys-cannot-share": {"ExecutionError", "ShapeError", "InputError"},
    "nothing-of-2-to-the-62": {"ResourceError"},
    "operator-newer-than-its-opset": {FINE},
    "producer-that-is-no-utf-8": {FINE},
    "kernel-of-other-rank": {"ModelError"},
    "range-beyond-64-bits-of-bytes": {"UnsupportedError", "ResourceError"},
    "recurrence-of-other-rank": {"ExecutionError"},
    "resize-of-nothing": {"ModelError"},
    "result-of-four-petabytes": {"ResourceError"},
    "result-that-is-not-named": {"ModelError"},
    "size-beyond-64-bits": {"UnsupportedError", "ResourceError", "ExecutionError"},
    "size-halved-70-times": {FINE},
    "sparse-tensor-of-no-type": {FINE},
    "transposed-convolution-to-less": {FINE},
    "transform-without-a-step": {"ExecutionError", "ShapeError", FINE},
    "window-wider-than-its-operand": {FINE},
}


def test_every_file_has_its_outcome() -> None:
    assert [path.stem for path in FILES] == sorted(EXPECTED)


@pytest.mark.parametrize("executor", range(len(EXECUTORS)), ids=EXECUTORS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_was_found_is_one_clear_error(path: Path, executor: int) -> None:
    assert outcome(path.read_bytes(), executor) in EXPECTED[path.stem]
