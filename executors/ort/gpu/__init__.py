"""ONNX Runtime on a GPU: subgraphs of a graph as sessions in graph mode, with our own steps between them."""
