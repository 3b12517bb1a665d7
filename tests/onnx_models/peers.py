"""The two that ours is held to: onnx's reference evaluator, and ONNX Runtime without its optimizations."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator


@cache
def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return options


def session(model: bytes) -> onnxruntime.InferenceSession:
    """A session on the CPU that changes nothing."""
    return onnxruntime.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])


def answers(opened: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """The results of a session, which is given copies: its BatchNormalization writes over inputs."""
    own = {name: np.array(each) if isinstance(each, np.ndarray) else each for name, each in feeds.items()}
    return list(opened.run(None, own))


def run_runtime(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    """The results of ONNX Runtime."""
    return answers(session(model), feeds)


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """The results of onnx's reference evaluator."""
    return list(ReferenceEvaluator(model).run(None, dict(feeds)))
