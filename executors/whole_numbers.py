"""Whole numbers that users give, of Python or of NumPy."""

import operator
from typing import Any


def whole_number(given: Any) -> int | None:
    """`given` as an `int`; None for what is no whole number, such as 2.0, "2" and True."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None
