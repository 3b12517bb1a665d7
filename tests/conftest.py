"""What tests share: how hard Hypothesis tries (the variable HYPOTHESIS_PROFILE), and the generation example."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capgraph.passes.planning import planner
from hypothesis import HealthCheck, settings

# The same examples on every run and machine, so that a red build is the change's own fault.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=24,  # `make fuzz` draws others
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # says more of the machine than of the test
)
# Open-ended search: `make fuzz`. The seed of a round brings its failures back.
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Every plan that any test makes is checked by code that shares nothing with the planner.
planner.checks_plans = True

gc.disable()  # until all is imported, of which nothing goes


def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector looks through what tests make, and that seldom (usual: 700)."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None:  # Dynamo flushes the caches to time the guards of each graph, for a line in a log
        guards.profile_guard_manager = lambda *_: 0.0  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The module `generate` of the examples, found as it is when it runs as a script."""
    import torch

    folder = str(Path(__file__).parents[1] / "examples")
    sys.path.insert(0, folder)
    torch.set_num_threads(1)
    yield importlib.import_module("generate")
    sys.path.remove(folder)
