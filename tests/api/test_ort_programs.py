"""The executor "ort" on a GPU, where it cannot run: what is told, and when. What it does there is in tests/gpu."""

from importlib import metadata
from typing import Any

import capgraph
import pytest
from capgraph.executors.ort import library
from capgraph.executors.ort.gpu import target as module
from capgraph.executors.ort.gpu.target import ort_on_cuda_target

from tests.api.models import affine


def packages(monkeypatch: pytest.MonkeyPatch, *installed: str) -> None:
    """Makes the environment look as if only these were installed."""
    modules = {name.removesuffix("-gpu") for name in installed}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(library, "_is_found", modules.__contains__)
    library.required.cache_clear()


@pytest.mark.parametrize(
    ("installed", "error", "message"),
    [
        (("onnx",), capgraph.MissingPackageError, "onnxruntime is not installed"),
        (("onnx", "onnxruntime", "onnxruntime-gpu"), capgraph.UnsupportedError, "both onnxruntime and onnxruntime-gpu"),
    ],
)
def test_packages_are_looked_at_before_the_model(
    installed: tuple[str, ...], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
):
    packages(monkeypatch, *installed)
    with pytest.raises(error, match=message) as caught:
        capgraph.optimize("missing.onnx", executor="ort", device="cuda")
    assert getattr(caught.value, "remedy", "")
    assert message in ort_on_cuda_target().problem


def test_packages_that_were_there_are_not_looked_for_again(monkeypatch: pytest.MonkeyPatch):
    assert library.problem_here() == ("", "")
    monkeypatch.setattr(library, "_is_found", lambda _: pytest.fail("looked for again"))
    capgraph.optimize(affine(), executor="ort")


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(capgraph.UnsupportedError, match="cuda:99"):
        capgraph.optimize("missing.onnx", executor="ort", device="cuda:99")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capture": {"states": capgraph.StateStore({})}}, "lives on the host"),
        ({"capture": {"bugdet": 1}}, "no option 'bugdet'"),
        ({"mode": "fast"}, "mode='fast'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str):
    with pytest.raises(capgraph.UnsupportedError, match=message):
        capgraph.optimize(affine(), executor="ort", device="cuda", **options)


def test_without_onnxruntime_the_target_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "problem_here", lambda: ("it is not here", "get it"))
    target = ort_on_cuda_target()
    assert (target.executor, target.device, target.captures) == ("ort", "cuda", True)
    assert (target.problem, target.remedy) == ("it is not here", "get it")
    assert library.problem_here() == ("", "")
