"""Every pass by name, and what levels are made of."""

import pytest
from capgraph.ir.errors import UnsupportedError
from capgraph.passes.catalog import PASSES, launch_pipeline, level_pipeline, pipeline
from capgraph.passes.framework.exactness import Exactness

from tests.passes.semantics import pipelines


def test_names_are_those_of_the_passes() -> None:
    for name, each in PASSES.items():
        assert each.name == name
        assert str(each()) == name
        assert each.__doc__


def test_levels_build_on_each_other() -> None:
    names = [{each.name for each in level_pipeline(level).passes} for level in range(4)]
    assert names[0] == set()
    assert names[0] < names[1] < names[2] <= names[3]


@pytest.mark.parametrize(("level", "allowed"), [(1, {"exact"}), (2, {"exact", "rounding"})])
def test_levels_allow_what_they_say(level: int, allowed: set[str]) -> None:
    assert {each.exactness.value for each in (*level_pipeline(level).passes, *launch_pipeline(level).passes)} <= allowed


def test_approximations_are_for_the_highest_level() -> None:
    approximate = {name for name, each in PASSES.items() if each.exactness is Exactness.APPROXIMATE}
    assert not approximate & {each.name for each in level_pipeline(2).passes}


@pytest.mark.parametrize("level", [-1, 4])
def test_other_levels(level: int) -> None:
    with pytest.raises(UnsupportedError, match=f"there is no level {level}"):
        level_pipeline(level)


def test_every_pipeline_reads_back() -> None:
    for made in pipelines().values():
        assert pipeline(str(made)) == made
