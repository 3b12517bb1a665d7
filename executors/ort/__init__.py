"""ONNX Runtime as an executor: the optimised graph, exported back to ONNX, in one session or in pieces."""
