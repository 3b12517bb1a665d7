r"""Reads the text of a symbolic dim: what `str` prints, and what people write by hand.

Grammar, with Python's precedence; a name that is no identifier stands in backticks, special characters as `\u{60}`:

    sum     = product {("+" | "-") product}
    product = signed {("*" | "//" | "%") signed}
    signed  = {"-"} primary
    primary = number | name | "(" sum ")" | ("min" | "max") "(" sum {"," sum} ")"
"""

import re
from collections.abc import Callable
from typing import TypeVar

from ..errors import ShapeError
from .atoms import MAX_DEPTH
from .symdim import Dim, dim_max, dim_min, floor_div, symbol

_Read = TypeVar("_Read")


def parse_dim(text: str) -> Dim:
    """The dim that the text writes, as `str` prints it. Raises `ShapeError` with the position on anything else."""
    return _Parser(text).parse()


class _Parser:
    """Recursive descent over one token at a time; a method for each line of the grammar."""

    _TOKEN = re.compile(
        r"\s*(?:(?P<number>[0-9]{1,30})|(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)|(?P<sign>//|[-+*%(),]))"
    )
    _ESCAPE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")
    _MAX_PARENTHESES = 2 * MAX_DEPTH + 2

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._open = 0
        self._kind = self._token = ""
        self._next = 0
        self._advance()

    def parse(self) -> Dim:
        dim = self._sum()
        if self._kind != "end":
            raise self._error("expected an operator or the end")
        return dim

    def _advance(self) -> None:
        match = self._TOKEN.match(self._text, self._next)
        if match is not None:
            self._kind = match.lastgroup or ""
            self._token = match[self._kind]
            self._position, self._next = match.start(self._kind), match.end()
            return
        rest = self._text[self._next :].lstrip()
        self._kind, self._token, self._position = ("wrong" if rest else "end"), "", len(self._text) - len(rest)

    def _error(self, problem: str) -> ShapeError:
        return ShapeError(f"cannot read the dim {self._text!r}: {problem} at position {self._position}")

    def _accepts(self, *signs: str) -> str | None:
        if self._kind != "sign" or self._token not in signs:
            return None
        sign = self._token
        self._advance()
        return sign

    def _expect(self, sign: str) -> None:
        if not self._accepts(sign):
            raise self._error(f"expected {sign!r}")

    def _sum(self) -> Dim:
        total = self._product()
        while sign := self._accepts("+", "-"):
            operand = self._product()
            total = total + operand if sign == "+" else total - operand
        return total

    def _product(self) -> Dim:
        total = self._signed()
        while sign := self._accepts("*", "//", "%"):
            operand = self._signed()
            if sign == "*":
                total = total * operand
            else:
                quotient = floor_div(total, operand)
                total = quotient if sign == "//" else total - operand * quotient
        return total

    def _signed(self) -> Dim:
        is_negative = False
        while self._accepts("-"):
            is_negative = not is_negative
        dim = self._primary()
        return -dim if is_negative else dim

    def _primary(self) -> Dim:
        kind, token = self._kind, self._token
        if kind == "number":
            self._advance()
            return int(token)
        if kind == "name":
            name = self._unquoted(token)
            self._advance()
            is_call = token in ("min", "max") and self._kind == "sign" and self._token == "("
            return self._call(token) if is_call else symbol(name)
        if token != "(":
            raise self._error("expected a number, a name or '('")
        return self._in_parentheses(self._sum)

    def _in_parentheses(self, read: Callable[[], _Read]) -> _Read:
        self._open += 1
        if self._open > self._MAX_PARENTHESES:
            raise self._error("too many open parentheses")
        self._expect("(")
        result = read()
        self._expect(")")
        self._open -= 1
        return result

    def _operands(self) -> list[Dim]:
        dims = [self._sum()]
        while self._accepts(","):
            dims.append(self._sum())
        return dims

    def _call(self, name: str) -> Dim:
        operands = self._in_parentheses(self._operands)
        return dim_min(*operands) if name == "min" else dim_max(*operands)

    def _unquoted(self, token: str) -> str:
        if not token.startswith("`"):
            return token
        try:
            return self._ESCAPE.sub(lambda match: chr(int(match[1], 16)), token[1:-1])
        except ValueError:
            raise self._error("a name with an escape that is no character") from None
