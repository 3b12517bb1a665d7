"""ONNX Runtime as an executor: the optimized graph, exported back to ONNX, in one session or in segments."""
