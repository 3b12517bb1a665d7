"""The options of sessions that belong to an optimized model, kept beside it as JSON, so that others can serve it.

    {"model": {"sha256": "...", "bytes": 123},
     "disabled_optimizers": {"CPUExecutionProvider": [...]}, "providers": {"CUDAExecutionProvider": {...}, ...}}

`model` is the file that they belong to. `providers` has the options of each provider that the model is for. What
belongs to a machine (threads, memory, streams) is not among them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from onnx import ModelProto

from ...frontends.onnx.contrib.convolutions import activations_for_cpu
from ...ir.errors import ModelError, ResourceError, UnsupportedError
from ...ir.graph import Graph
from ...ir.types import TensorType
from .cuda_kernels import has_kernels
from .faults import wrong_optimizers
from .gpu.partition import evident_problem
from .gpu.session import CHANNELS_LAST, CUDA, Provider, cuda_provider
from .library import failures, onnxruntime
from .session import DISABLED_OPTIMIZERS, first_line

CPU = "CPUExecutionProvider"
_OF_THE_MACHINE = ("device_id", "user_compute_stream", "arena_extend_strategy")


def options_path(model: Path) -> Path:
    """Where the options of a model are kept."""
    return model.with_name(f"{model.name}.options.json")


def session_options(graph: Graph, model: ModelProto, level: int = 2) -> dict[str, Any]:
    """The options for sessions of `model`, as which the optimized `graph` was written at that level of passes.

    Graph mode is among them where one recording serves all calls and CUDA is known to have a kernel for every node.
    A model with operators that only the CPU has gets no options for CUDA.
    """
    wrong = wrong_optimizers(graph)
    disabled, providers = {CPU: [*DISABLED_OPTIMIZERS, *wrong]}, {CPU: dict[str, str]()}
    if not activations_for_cpu(model):
        provider = cuda_provider(0, 0, level).suited_to(graph)
        on_gpu = provider.recording().options if _is_recordable(graph, model, provider) else provider.options
        providers[CUDA] = {key: on_gpu[key] for key in on_gpu if key not in _OF_THE_MACHINE}
        if wrong:
            disabled[CUDA] = [*wrong]
    return {"disabled_optimizers": disabled, "providers": providers}


def _is_recordable(graph: Graph, model: ModelProto, provider: Provider) -> bool:
    """Whether graph mode takes a model as a whole; a recording is replayed whatever the sizes of a call are."""
    if CHANNELS_LAST in provider.options:
        return False  # ONNX Runtime adds transposes, for which no kernel is known at the opset that is written
    is_fixed = all(isinstance(value.type, TensorType) and value.type.is_static for value in graph.inputs)
    is_evident = any(evident_problem(node, frozenset()) for node in graph.nodes)
    return is_fixed and not is_evident and has_kernels(model)


def write_session_options(options: Mapping[str, Any], model: Path) -> Path:
    """Writes options beside a model file, bound to its content. Raises `ResourceError` where that cannot be done."""
    path = options_path(model)
    try:
        bound = {"model": _identity(model), **options}
        path.write_text(json.dumps(bound, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error}", remedy="check the disk and the folder") from error
    return path


def _identity(model: Path) -> dict[str, str | int]:
    with model.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": model.stat().st_size}


def read_session_options(model: Path) -> dict[str, Any]:
    """The options beside a model file.

    Raises `ModelError` where there are none, none that can be read, or those of another model.
    """
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
    _check_identity(found, model)
    return cast("dict[str, Any]", found)


def _check_identity(found: Mapping[str, Any], model: Path) -> None:
    try:
        is_same = found.get("model") == _identity(model)
    except OSError as error:
        raise ModelError(f"{model} cannot be read: {error}", remedy="check the path") from error
    if not is_same:
        raise ModelError(
            f"{options_path(model).name} belongs to another model than {model.name}, which was written after it",
            remedy=f"capgraph optimize MODEL -o {model.name} --session-options writes both; or remove the options",
        )


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
    if provider == CUDA and provider not in found["providers"]:
        raise UnsupportedError(
            f"{path.name} has operators that ONNX Runtime has on the CPU alone",
            remedy="capgraph optimize --for standard writes it for every provider",
        )
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
