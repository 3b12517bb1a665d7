"""What a pass promises about the numbers."""

from enum import Enum


class Exactness(Enum):
    """How far a pass may move results: not a bit, re-associated within the dtype, or by a named approximation."""

    EXACT = "exact"
    ROUNDING = "rounding"
    APPROXIMATE = "approximate"
