"""Graphs out, as ONNX models."""
