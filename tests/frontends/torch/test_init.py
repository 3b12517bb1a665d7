"""The package itself: its functions, and what importing it costs."""

import subprocess
import sys

import pytest
import torch
from capgraph.frontends import torch as frontend


def test_functions_are_found_where_the_package_is() -> None:
    module = torch.nn.Linear(4, 2)
    model = frontend.from_torch(module, (torch.ones(3, 4),), dynamic_shapes=({0: "batch"},))
    assert str(model.graph.outputs[0].type) == "f32[batch, 2]"
    traced = torch.fx.symbolic_trace(module)
    assert len(frontend.from_fx(traced, (torch.ones(3, 4),)).graph.outputs) == 1
    assert len(frontend.from_exported(torch.export.export(module, (torch.ones(3, 4),))).graph.outputs) == 1


def test_what_the_package_does_not_have() -> None:
    with pytest.raises(AttributeError, match="no attribute 'from_nothing'"):
        _ = frontend.from_nothing


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, capgraph.frontends.torch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
