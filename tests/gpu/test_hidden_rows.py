"""Attention without a guard gives NaN where a mask hides all keys, in recorded programs on a GPU."""

import capgraph
import numpy as np
import pytest
from capgraph.ir.text.parser import parse

torch = pytest.importorskip("torch", reason="a GPU is looked for through PyTorch")
pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("mask", ["bool[T, T]", "{}[B, 1, T, T]"])
@pytest.mark.parametrize("steps", [5, 300])
def test_rows_that_see_no_key_are_nan(dtype: str, mask: str, steps: int) -> None:
    shape = mask.format(dtype)
    hidden = "%t = where(%m, %s, %low)" if "bool" in mask else "%t = add(%s, %m)"
    graph = parse(
        f"""graph @main(%q: {dtype}[B, 2, T, 64], %k: {dtype}[B, 2, T, 64], %v: {dtype}[B, 2, T, 64], %m: {shape}) {{
          %low: {dtype}[] = constant() {{value = dense<{dtype}[]: -inf>}}
          %kt = transpose(%k) {{perm = [0, 1, 3, 2]}}
          %s = matmul(%q, %kt)
          {hidden}
          %p = softmax(%t)
          %y = matmul(%p, %v)
          return %y
        }}"""
    )
    draw = np.random.default_rng(0)
    kind = np.float32 if dtype == "f32" else np.float16
    given = {name: draw.standard_normal((2, 2, steps, 64)).astype(kind) * kind(0.3) for name in "qkv"}
    shown = draw.random((2, 1, steps, steps) if "B" in shape else (steps, steps)) < 0.5
    shown[..., 1, :] = False
    given["m"] = shown if "bool" in mask else np.where(shown, 0, -np.inf).astype(kind)
    wanted = capgraph.optimize(graph, executor="eager", level=0).run(given)["y"]
    assert np.isnan(wanted[:, :, 1]).all()
    program = capgraph.optimize(graph, executor="graph", device="cuda", dynamic={"B": 2, "T": steps})
    assert any(node.op.name == "attention" for node in program.graph.nodes)
    for _ in range(3):
        found = program.run(given)["y"]
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2 if dtype == "f16" else 1e-4)
