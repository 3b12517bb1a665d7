"""Folders of the package are small, and no circle of imports leads out of one: see tests/project/imports.py."""

from collections import Counter

import pytest

from tests.project.imports import circles, package_folders, read_module, read_package

MOST_FILES = 25
"""Python files that a folder may hold."""


def test_no_folder_holds_more_files_than_a_reader_overlooks() -> None:
    counts = Counter(path.parent for folder in package_folders().values() for path in folder.rglob("*.py"))
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_no_circle_of_imports_leads_through_several_folders() -> None:
    assert circles(read_package()) == []


@pytest.mark.parametrize(
    "late",
    [
        "from ..b import two",
        "def f():\n    from ..b.two import g",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..b import two",
    ],
)
def test_a_circle_is_named(late: str) -> None:
    sources = {
        "capgraph.a.one": late,
        "capgraph.b.two": "from . import three",
        "capgraph.b.three": "from ..a import one",
    }
    modules = {name: read_module(name, source) for name, source in sources.items()}
    assert circles(modules) == [["capgraph.a.one", "capgraph.b.three", "capgraph.b.two"]]


def test_circles_within_a_folder_are_its_own() -> None:
    modules = {
        "capgraph.a.one": read_module("capgraph.a.one", "from . import two"),
        "capgraph.a.two": read_module("capgraph.a.two", "from .one import f"),
    }
    assert circles(modules) == []
