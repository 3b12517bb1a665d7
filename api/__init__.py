"""Capgraph: models from ONNX or PyTorch as one typed graph, made smaller, planned, and run."""

__version__ = "0.1.0"
