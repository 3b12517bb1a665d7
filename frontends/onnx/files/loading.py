"""From a path, bytes or a `ModelProto` to a `ModelProto`, without loading external data."""

import warnings
from pathlib import Path

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from ....ir.errors import ModelError, ResourceError, UnsupportedError
from .old_models import OLDEST_OPSET, brought_up

_UNREADABLE = (ValueError, OSError, DecodeError, json_format.Error, text_format.Error, onnx.parser.ParseError)


def load_proto(source: str | Path | bytes | ModelProto) -> tuple[ModelProto, Path | None]:
    """The model and the folder that its external data lies in (None when `source` is not a path).

    Raises `ModelError` when the file is missing, cannot be decoded, or holds no graph.
    """
    if isinstance(source, ModelProto):
        return _checked(source, "the given model"), None
    if isinstance(source, bytes):
        return _checked(_decode(source, "the given bytes"), "the given bytes"), None
    path = Path(source)
    if not _is_file(path):
        raise ModelError(f"there is no model file {path}", remedy="check the path")
    return _checked(_read(path), str(path)), path.parent


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # the name is too long, or a folder may not be searched
        raise ModelError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error


def _read(path: Path) -> ModelProto:
    if path.suffix in (".json", ".textproto", ".prototxt", ".pbtxt", ".onnxtxt", ".onnxjson"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # onnx calls its own text form experimental
                return onnx.load(path, load_external_data=False)
        except _UNREADABLE as error:
            raise ModelError(f"{path} cannot be read: {error}", remedy="export the model again") from error
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except MemoryError as error:
        raise ResourceError(f"{path} does not fit into memory", remedy="store its weights as external data") from error
    return _decode(data, str(path))


def _decode(data: bytes, name: str) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(data)
        return model
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(f"{name} is not an ONNX model: {error}", remedy="export the model again") from error


def _checked(model: ModelProto, name: str) -> ModelProto:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{name} holds no graph", remedy="export the model again")
    version, newest = opset_versions(model).get("", OLDEST_OPSET), onnx.defs.onnx_opset_version()
    if version > newest:
        raise UnsupportedError(
            f"{name} uses opset {version}, but the installed onnx knows them only up to {newest}",
            remedy="pip install --upgrade onnx",
        )
    return model if version >= OLDEST_OPSET else brought_up(model, version, name)


def opset_versions(model: ModelProto) -> dict[str, int]:
    """The opset version of each domain that the model imports; the default domain is `""`."""
    versions = {"" if entry.domain == "ai.onnx" else entry.domain: int(entry.version) for entry in model.opset_import}
    return versions or {"": 1 if model.ir_version < 3 else OLDEST_OPSET}
