"""Reads types and sizes from text, as `str` writes them."""

import ast
import re

from ..dims import Dim, parse_dim
from ..errors import CapgraphError
from ..types import DType, OpaqueType, OptionalType, SequenceType, TensorType, Type
from .cursor import BRACKETED, Cursor

MAX_NESTING = 50
"""How deep types and lists may stand in each other."""

_DTYPES = {dtype.value: dtype for dtype in DType}
_TENSOR = re.compile(rf"\s*([a-z][a-z0-9]*{BRACKETED})")
_WRAPPER = re.compile(r"\s*(seq|optional|opaque)\(")
_OPAQUE_NAME = re.compile(r"""\s*("[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')""")
_CLOSE_PAREN = re.compile(r"\s*\)")
_LIST_PIECE = re.compile(r"[^`(),]+|`[^`\n]*`|[(),]")
_DIM_PIECE = re.compile(r"[^`(),{}]+|`[^`\n]*`|[(),]")


class TypeReader:
    """Reads types and lists of dims; a text that came before is not taken apart again."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._types: dict[str, TensorType] = {}
        self._dims: dict[str, tuple[Dim, ...]] = {}

    def read(self, depth: int = 0) -> Type:
        cursor = self._cursor
        found = cursor.match(_TENSOR)
        if found is not None:
            known = self._types.get(found[1])
            return known if known is not None else self._tensor(found)
        start = cursor.position
        wrapper = cursor.expect(_WRAPPER, "a type, such as f32[B, 4]")[1]
        if depth > MAX_NESTING:
            raise cursor.error("the type is nested too deeply", start)
        ty = self._opaque() if wrapper == "opaque" else self._wrapped(wrapper, depth)
        cursor.expect(_CLOSE_PAREN, ")")
        return ty

    def dims(self, found: re.Match[str], group: int) -> tuple[Dim, ...]:
        """The dims in the brackets that `found` matched."""
        text = found[group]
        known = self._dims.get(text)
        if known is None:
            try:
                known = tuple(parse_dim(piece) for piece in _split_dims(text)) if text.strip() else ()
            except CapgraphError as error:
                raise self._cursor.error(error.message, found.start(group)) from None
            self._dims[text] = known
        return known

    def dim(self) -> Dim:
        """The one dim up to a comma, brace or parenthesis that does not belong to it."""
        cursor, start, depth = self._cursor, self._cursor.position, 0
        while (found := _DIM_PIECE.match(cursor.text, cursor.position, cursor.end)) is not None:
            piece = found[0]
            if not depth and piece in ",)":
                break
            depth += (piece == "(") - (piece == ")")
            cursor.position = found.end()
        try:
            return parse_dim(cursor.text[start : cursor.position])
        except CapgraphError as error:
            raise cursor.error(error.message, start) from None

    def _tensor(self, found: re.Match[str]) -> TensorType:
        text = found[1]
        name = text[: text.index("[")]
        dtype = _DTYPES.get(name)
        if dtype is None:
            raise self._cursor.error(f"there is no element type {name}", found.start(1))
        shape = None if found[2].strip() == "*" else self.dims(found, 2)
        self._types[text] = TensorType(dtype, shape)
        return self._types[text]

    def _wrapped(self, wrapper: str, depth: int) -> Type:
        element = self.read(depth + 1)
        return SequenceType(element) if wrapper == "seq" else OptionalType(element)

    def _opaque(self) -> Type:
        token = self._cursor.expect(_OPAQUE_NAME, "the name of an opaque type in quotes")[1]
        try:
            return OpaqueType(str(ast.literal_eval(token)))
        except (SyntaxError, ValueError) as error:
            raise self._cursor.error(f"{token} is no string ({error})", self._cursor.position - len(token)) from None


def _split_dims(text: str) -> list[str]:
    """The pieces between the commas that stand in no parentheses and no backticks."""
    if "(" not in text and "`" not in text:
        return text.split(",")
    pieces, depth = [""], 0
    for found in _LIST_PIECE.finditer(text):
        piece = found[0]
        depth += (piece == "(") - (piece == ")")
        if piece == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += piece
    return pieces
