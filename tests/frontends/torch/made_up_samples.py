"""Samples of made-up operators, for workers that load nothing else."""

import os
from collections.abc import Iterator
from typing import Any


def fake(name: str, first: int) -> Iterator[Any]:
    """Samples of a made-up operator: the second of `wrong` differs, that of `ends` ends its process."""
    for index in range(first, 3):
        if index == 1 and name == "ends":
            os._exit(1)
        yield "AssertionError: differs" if index == 1 and name == "wrong" else ("native", ())
