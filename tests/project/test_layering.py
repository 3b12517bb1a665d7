"""Imports go one way, and `import capgraph` loads nothing heavy: see tests/project/imports.py for the rules."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.imports import (
    ROOT,
    heavy_imports,
    layering_faults,
    loaded_by,
    module_files,
    read_module,
    read_package,
    syntax_of,
)

PROBE = """
import sys
import capgraph
print(" ".join(sorted(sys.modules)))
"""
MOST_LOADED = 5
"""Modules of the package that importing it loads: names load when they are first used."""

LOADED_WHEN_USED = {"torch", "cupy", "cuda", "nvmath", "cudnn", "onnx", "onnxruntime", "PIL"}


def test_the_package_keeps_its_layers() -> None:
    modules = read_package()
    assert {"capgraph", "capgraph.ir", "capgraph.passes", "capgraph.executors", "capgraph.frontends"} <= modules.keys()
    assert [fault for module in modules.values() for fault in layering_faults(module)] == []


def test_import_capgraph_reaches_no_heavy_import() -> None:
    modules = read_package()
    reached = loaded_by("capgraph", modules)
    assert {name: heavy_imports(modules[name]) for name in reached if heavy_imports(modules[name])} == {}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The modules that `import capgraph` loads in a fresh process."""
    folder = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_capgraph_loads_no_optional_package(loaded: list[str]) -> None:
    assert "capgraph" in loaded
    assert {name.partition(".")[0] for name in loaded} & LOADED_WHEN_USED == set()


def test_import_capgraph_loads_little_of_the_package(loaded: list[str]) -> None:
    assert len([name for name in loaded if name.partition(".")[0] == "capgraph"]) <= MOST_LOADED


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("capgraph.ir.graph", "from ..passes import base", "ir may not import passes"),
        ("capgraph.ir.graph", "def f():\n    from .. import api_call", "ir may not import api"),
        ("capgraph.ir.graph", "import onnx", "ir may not import onnx"),
        ("capgraph.ir.graph", "def f():\n    import torch.nn", "ir may not import torch"),
        ("capgraph.ir.graph", "from capgraph.ir import types", "capgraph.ir is imported by its full name"),
        ("capgraph.ir.graph", "from .... import types", "a relative import leaves the package"),
        ("capgraph.passes.planning.memory", "from ...executors.host import kernels", "passes may not import executors"),
        ("capgraph.passes.fold", "import scipy", "passes may not import scipy"),
        ("capgraph.frontends.onnx.load", "from ...passes import fold", "frontends may not import passes"),
        ("capgraph.frontends.onnx.load", "from ... import optimize", "frontends may not import api"),
        ("capgraph.executors.steps", "from ..frontends.onnx import export", "executors may not import frontends"),
        ("capgraph.executors.steps", "from ..frontends import onnx", "executors may not import frontends"),
        ("capgraph.executors.ort", "from ..frontends import torch", "executors may not import frontends"),
        (
            "capgraph.ir.graph",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..passes import base",
            "ir may not import passes",
        ),
    ],
)
def test_a_broken_layer_is_named(name: str, source: str, fault: str) -> None:
    assert any(fault in found for found in layering_faults(read_module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "capgraph.ir.graph",
            "import re\nimport numpy as np\nimport ml_dtypes\nfrom .types import DType\nfrom . import dims",
        ),
        ("capgraph.ir.ops.nn.conv", "from ..types import DType\nfrom ...ir import dims"),
        ("capgraph.passes.fold", "from ..ir.graph import Graph\nfrom ..ir import graph\nfrom .. import ir"),
        ("capgraph.frontends.onnx.load", "import onnx\nfrom ...ir import graph"),
        ("capgraph.executors.ort", "from ..frontends.onnx import export"),
        ("capgraph.executors.ort.session", "from ...frontends import onnx"),
        ("capgraph.cli", "from .ir import graph\nfrom .frontends.onnx import load\nfrom .executors import eager"),
    ],
)
def test_an_allowed_import_passes(name: str, source: str) -> None:
    assert layering_faults(read_module(name, source)) == []


def test_only_what_runs_on_import_is_loaded() -> None:
    program = """
class Program:
    import torch

    def run(self):
        import cupy
        from . import late
"""
    sources = {
        "capgraph": "from .program import Program",
        "capgraph.program": program,
        "capgraph.late": "import onnx",
        "capgraph.ir": "import numpy",
        "capgraph.ir.graph": "",
    }
    modules = {name: read_module(name, source, is_package=name == "capgraph") for name, source in sources.items()}
    assert loaded_by("capgraph", modules) == {"capgraph", "capgraph.program"}
    assert loaded_by("capgraph.ir.graph", modules) == {
        "capgraph.ir.graph",
        "capgraph.ir",
        "capgraph",
        "capgraph.program",
    }
    assert heavy_imports(modules["capgraph.program"]) == ["torch"]


AROUND = ("tests", "benchmarks", "examples", "docs")
_IMPORT = re.compile(r"^ *from (capgraph[.\w]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def test_what_is_imported_of_the_package_is_there() -> None:
    """Examples, benchmarks and scripts in strings run seldom: what moves away from under them is seen here."""
    modules = read_package()
    names = {name: _names(path) for name, path in module_files().items()}
    missing = [
        f"{path.relative_to(ROOT)}: {module} {wanted}"
        for folder in AROUND
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module, *listed in _IMPORT.findall(path.read_text())
        for wanted in re.findall(r"(?<!as )\b[A-Za-z_]\w*", re.sub(r"#.*| as \w+", "", "".join(listed)))
        if f"{module}.{wanted}" not in modules and wanted not in names.get(module, ())
    ]
    assert missing == []


def test_modules_that_scripts_name_in_quotes_are_there() -> None:
    modules = read_package()
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in re.findall(r'"(capgraph(?:\.[a-z_]+)+)"', path.read_text())
        if name not in modules
    ]
    assert missing == []


def _names(path: Path) -> set[str]:
    """What a module names at its top, `__all__` included."""
    tree = syntax_of(path)
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    found |= {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    return found | {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_only_the_graph_writes_nodes_and_values() -> None:
    modules = read_package().values()
    writers = {each.name for each in modules if any(i.target == "capgraph.ir.node.write" for i in each.imports)}
    assert writers == {"capgraph.ir.graph", "capgraph.ir.node_list"}
