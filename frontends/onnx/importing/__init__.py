"""ONNX models in."""

from . import sized  # noqa: F401  # it registers how foreign operators run
