"""The package itself: its names load when used, and importing it loads nothing."""

import subprocess
import sys

import capgraph
import pytest
from capgraph.ir import errors


@pytest.mark.parametrize("name", capgraph.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(capgraph, name) is not None


def test_all_errors_are_there() -> None:
    defined = {n for n, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined <= set(capgraph.__all__)
    assert all(getattr(capgraph, name) is getattr(errors, name) for name in defined)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimizer'"):
        capgraph.optimizer  # noqa: B018


def test_dir_lists_the_public_names() -> None:
    assert dir(capgraph) == sorted(capgraph.__all__)


@pytest.mark.parametrize("first", ["capgraph.optimization", "capgraph.cli", "capgraph.sources"])
def test_optimize_stays_a_function_whatever_is_imported_first(first: str) -> None:
    program = f"import {first}, capgraph; assert callable(capgraph.optimize), capgraph.optimize"
    subprocess.run([sys.executable, "-c", program], check=True)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from capgraph import *
import capgraph
assert isinstance(capgraph.TorchProgram, type)
for use in (compile, decoding_loop, TorchProgram, lambda: capgraph.compile(executor="graph")):
    try:
        use()
    except capgraph.MissingPackageError as error:
        assert "capgraph[torch]" in error.remedy, error
    else:
        raise AssertionError(use)
"""


def test_every_name_can_be_imported_without_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)


def test_importing_loads_not_even_numpy() -> None:
    program = "import sys, capgraph; sys.exit(any(name in sys.modules for name in ('numpy', 'capgraph.ir')))"
    subprocess.run([sys.executable, "-c", program], check=True)
