"""The pinned environments hold what their users import."""

import re

import pytest

from tests.project.imports import ROOT

ON_THE_INDEX = {"cupy": "cupy-cuda13x", "nvmath": "nvmath-python", "onnxruntime": "onnxruntime-gpu"}
"""Packages whose name is another when they are installed for CUDA 13."""


def pinned(name: str) -> set[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return {line.partition("==")[0].lower() for line in lines if "==" in line and not line.startswith("#")}


def test_no_test_on_a_gpu_is_skipped_for_want_of_a_package() -> None:
    tests = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    named = {name for path in tests for name in re.findall(r'importorskip\("([\w.]+)"', path.read_text())}
    assert named >= {"cupy", "torch", "onnxscript"}
    wanted = {ON_THE_INDEX.get(name, name) for name in (each.partition(".")[0] for each in named)}
    assert wanted <= pinned("gpu-cuda13.txt")


@pytest.mark.parametrize("name", ["dev.txt", "bench.txt", "gpu-cuda13.txt"])
def test_only_one_onnxruntime_is_installed(name: str) -> None:
    assert len(pinned(name) & {"onnxruntime", "onnxruntime-gpu"}) == 1
