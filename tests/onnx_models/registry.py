"""Which recipe draws a node of which operator."""

from collections.abc import Callable
from typing import TypeAlias

from tests.onnx_models.draw import Draw

Recipe: TypeAlias = Callable[[Draw, str], object]
RECIPES: dict[str, Recipe] = {}
ALONE: set[str] = set()
"""Operators that draw numbers: in models of one node, of which types and shapes are compared."""


def recipe(*operators: str) -> Callable[[Recipe], Recipe]:
    """Registers what draws a node of these operators."""

    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(operators, function))
        return function

    return register
