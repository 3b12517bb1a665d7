"""The ONNX frontend: import, export, the operator table and foreign operators."""
