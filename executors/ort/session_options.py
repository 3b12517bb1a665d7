"""The options of sessions that belong to an optimised model, kept beside it as JSON, so that others can serve it.

    {"disabled_optimizers": {"CPUExecutionProvider": [...]}, "providers": {"CUDAExecutionProvider": {...}, ...}}

`providers` has the options of each provider. What belongs to a machine (threads, memory, streams) is not among them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...ir.errors import ModelError, ResourceError, UnsupportedError
from ...ir.graph import Graph
from .faults import wrong_optimizers
from .gpu.provider import CUDA, cuda_provider
from .library import failures, onnxruntime
from .session import DISABLED_OPTIMIZERS, first_line

CPU = "CPUExecutionProvider"
_OF_THE_MACHINE = ("device_id", "user_compute_stream", "arena_extend_strategy")


def options_path(model: Path) -> Path:
    """Where the options of a model are kept."""
    return model.with_name(f"{model.name}.options.json")


def session_options(graph: Graph, level: int = 2) -> dict[str, Any]:
    """The options for sessions of an optimised graph."""
    on_gpu, wrong = cuda_provider(0, 0, level).suited_to(graph).recording().options, wrong_optimizers(graph)
    return {
        "disabled_optimizers": {CPU: [*DISABLED_OPTIMIZERS, *wrong], **({CUDA: [*wrong]} if wrong else {})},
        "providers": {CPU: {}, CUDA: {key: on_gpu[key] for key in on_gpu if key not in _OF_THE_MACHINE}},
    }


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
    if not isinstance(found, dict) or not all(isinstance(found.get(key), dict) for key in _KEYS):
        raise ModelError(f"{path} has no options of sessions: it lacks {' or '.join(_KEYS)}")
    return found


_KEYS = ("providers", "disabled_optimizers")


def open_session(model: str | Path, provider: str = CPU, **own: str) -> Any:
    """An `onnxruntime.InferenceSession` of a model with the options beside it, on `provider`.

    `own` are further options of the provider, such as `device_id`. Raises `ModelError` without readable options,
    `UnsupportedError` when ONNX Runtime refuses, or gives another provider than the one that was asked for.
    """
    path = Path(model)
    found = read_session_options(path)
    options = onnxruntime().SessionOptions()
    chosen = {**found["providers"].get(provider, {}), **own}
    disabled = set(found["disabled_optimizers"].get(provider, ()))
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
