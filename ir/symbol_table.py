"""The names of symbolic sizes that a graph and its regions use."""

from collections.abc import Iterable

from .dims import SymDim, symbol
from .types import TensorType, Type, type_symbols


class SymbolTable:
    """The names of symbolic sizes of a graph and its regions; gives out new ones."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: set[str] = set(names)
        self._next = 0

    def fresh(self) -> SymDim:
        """A symbol that nothing uses yet."""
        while (name := f"u{self._next}") in self.names:
            self._next += 1
        self.names.add(name)
        return symbol(name)

    def add(self, ty: Type) -> None:
        if not (isinstance(ty, TensorType) and ty.is_static):
            self.names |= type_symbols(ty)
