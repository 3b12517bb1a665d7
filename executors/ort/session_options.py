"""The options of sessions that belong to an optimised model, kept beside it as JSON, so that others can serve it.

    {"disabled_optimizers": {"CPUExecutionProvider": [...]}, "providers": {"CUDAExecutionProvider": {...}, ...}}

`providers` has the options of each provider. What belongs to a machine (threads, memory, streams) is not among them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ...ir.errors import ModelError, ResourceError, UnsupportedError
from ...ir.graph import Graph
from ...ir.types import TensorType
from .faults import wrong_optimizers
from .gpu.partition import evident_problem
from .gpu.provider import CUDA, cuda_provider
from .library import failures, onnxruntime
from .session import DISABLED_OPTIMIZERS, first_line

CPU = "CPUExecutionProvider"
_OF_THE_MACHINE = ("device_id", "user_compute_stream", "arena_extend_strategy")


def options_path(model: Path) -> Path:
    """Where the options of a model are kept."""
    return model.with_name(f"{model.name}.options.json")


def session_options(graph: Graph, level: int = 2) -> dict[str, Any]:
    """The options for sessions of an optimised graph. Graph mode is among them where one recording serves all calls."""
    provider, wrong = cuda_provider(0, 0, level).suited_to(graph), wrong_optimizers(graph)
    on_gpu = provider.recording().options if _is_recordable(graph) else provider.options
    return {
        "disabled_optimizers": {CPU: [*DISABLED_OPTIMIZERS, *wrong], **({CUDA: [*wrong]} if wrong else {})},
        "providers": {CPU: {}, CUDA: {key: on_gpu[key] for key in on_gpu if key not in _OF_THE_MACHINE}},
    }


def _is_recordable(graph: Graph) -> bool:
    """Whether graph mode takes a graph as a whole; a recording is replayed whatever the sizes of a call are."""
    is_fixed = all(isinstance(value.type, TensorType) and value.type.is_static for value in graph.inputs)
    return is_fixed and not any(evident_problem(node, frozenset()) for node in graph.nodes)


def write_session_options(options: Mapping[str, Any], model: Path) -> Path:
    """Writes options beside a model. Raises `ResourceError` where that cannot be done."""
    path = options_path(model)
    try:
        path.write_text(json.dumps(options, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error}", remedy="check the disk and the folder") from error
    return path


def read_session_options(model: Path) -> dict[str, Any]:
    """The options beside a model. Raises `ModelError` where there are none, or none that can be read."""
    path = options_path(model)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} has no options of sessions: {error}",
            remedy=f"capgraph optimize MODEL -o {model.name} --session-options writes them",
        ) from error
    for key, inner in _PARTS.items():
        part = found.get(key) if isinstance(found, dict) else None
        if not isinstance(part, dict) or not all(isinstance(each, inner) for each in part.values()):
            raise ModelError(f"{path} has no options of sessions: {key} has no {inner.__name__} for each provider")
    return cast("dict[str, Any]", found)


_PARTS = {"providers": dict, "disabled_optimizers": list}


def open_session(model: str | Path, provider: str = CPU, **own: str) -> Any:
    """An `onnxruntime.InferenceSession` of a model with the options beside it, on `provider`.

    `own` are further options of the provider, such as `device_id`. Raises `ModelError` without a model or readable
    options, `UnsupportedError` when ONNX Runtime refuses, or gives another provider than the one that was asked for.
    """
    path = Path(model)
    if not path.is_file():
        raise ModelError(f"there is no model file {path}", remedy="check the path")
    found = read_session_options(path)
    options = onnxruntime().SessionOptions()
    chosen = {**found["providers"].get(provider, {}), **own}
    disabled = {str(name) for name in found["disabled_optimizers"].get(provider, ())}
    if provider not in onnxruntime().get_available_providers():
        raise UnsupportedError(
            f"the installed ONNX Runtime has no {provider}", remedy="install the build of it that has, alone"
        )
    try:
        session = onnxruntime().InferenceSession(
            str(path), options, providers=[(provider, chosen)], disabled_optimizers=disabled, enable_fallback=0
        )
    except failures() as error:
        raise UnsupportedError(
            f"ONNX Runtime refuses {path.name}: {first_line(error)}",
            remedy="capgraph optimize --for standard writes it for every version and provider",
        ) from error
    got = session.get_providers()
    if provider not in got:
        raise UnsupportedError(
            f"ONNX Runtime gave a session on {', '.join(got)} instead of {provider}",
            remedy=f"look at the log for why {provider} failed, or ask for another provider",
        )
    return session
