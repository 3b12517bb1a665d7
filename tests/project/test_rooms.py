"""Folders of the package are small, and no circle of imports leads out of one: see tests/project/imports.py."""

import ast
from collections import Counter

import pytest

from tests.project.imports import circles, circles_of_rooms, package_folders, read_module, read_package, syntax_of

MOST_FILES = 25
"""Python files that a folder may hold."""


def test_no_folder_holds_more_files_than_a_reader_overlooks() -> None:
    counts = Counter(path.parent for folder in package_folders().values() for path in folder.rglob("*.py"))
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_no_circle_of_imports_leads_through_several_folders() -> None:
    assert circles(read_package()) == []


def test_rooms_side_by_side_have_an_order() -> None:
    assert circles_of_rooms(read_package()) == []


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


def test_rooms_that_import_each_other_are_named_though_no_module_is_on_a_circle() -> None:
    sources = {
        "capgraph.a.one": "from ..b.inner import two",
        "capgraph.b.inner.two": "",
        "capgraph.b.three": "from ..c import four",
        "capgraph.c.four": "from ..a import five",
        "capgraph.a.five": "",
    }
    modules = {name: read_module(name, source) for name, source in sources.items()}
    assert circles(modules) == []
    assert circles_of_rooms(modules) == [["capgraph.a", "capgraph.b", "capgraph.c"]]


def test_a_folder_may_import_its_rooms_and_they_it() -> None:
    sources = {
        "capgraph.a.table": "from .b import family",
        "capgraph.a.b.family": "from ..base import f",
        "capgraph.a.base": "",
    }
    modules = {name: read_module(name, source) for name, source in sources.items()}
    assert circles_of_rooms(modules) == []


TWICE_ON_PURPOSE = {"TorchProgram"}
"""Without torch there is a class of that name which no object has."""


def test_no_public_class_has_the_name_of_another() -> None:
    paths = [path for folder in package_folders().values() for path in folder.rglob("*.py")]
    trees = [syntax_of(path) for path in dict.fromkeys(paths)]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1 and not name.startswith("_")} == TWICE_ON_PURPOSE
