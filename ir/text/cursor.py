"""Reading text piece by piece: a position, the patterns that names and strings share, and errors that show the place.

The text form's names are bare when they look like identifiers or numbers and quoted as in JSON otherwise, so that
whatever a source model calls its values survives (`%x`, `%0`, `%"/layer1/Conv out"`).
"""

import json
import re

from ..errors import ParseError

NAME = r"[A-Za-z0-9_.]+"
STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
BRACKETED = r"\[([^\[\]`]*(?:`[^`\n]*`[^\[\]`]*)*)\]"
"""A shape or a list of dims. Names of symbols that are no identifiers stand in backticks and may hold anything else."""

_BARE = re.compile(NAME)
_BLANK = re.compile(r"\s*")
_BETWEEN = re.compile(r"(?:\s+|//[^\n]*)*")
_WIDTH = 120


def string_text(text: str) -> str:
    """`text` in quotes, escaped as in JSON; on one line whatever it holds."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def name_text(name: str) -> str:
    """`name` as it stands after a `%` or `@`: bare if possible, otherwise in quotes."""
    return name if _BARE.fullmatch(name) else string_text(name)


class Cursor:
    """A position in a text, which `match` and `expect` move forward."""

    __slots__ = ("end", "position", "text")

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text = text
        self.position = start
        self.end = len(text) if end is None else end

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match right here, and the position moved behind it; None and no move when there is none."""
        found = pattern.match(self.text, self.position, self.end)
        if found is not None:
            self.position = found.end()
        return found

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """As `match`, but raises `ParseError` "expected `what`" when there is none."""
        found = pattern.match(self.text, self.position, self.end)
        if found is None:
            raise self.error(f"expected {what}")
        self.position = found.end()
        return found

    def skip_between(self) -> None:
        """Moves over blanks and `//` comments, which may stand between statements."""
        self.match(_BETWEEN)

    @property
    def is_at_end(self) -> bool:
        """Whether the whole text has been read."""
        return self.position >= self.end

    def unquoted(self, token: str) -> str:
        """The name or string that `token` writes. Raises `ParseError` for a bad escape."""
        if not token.startswith('"'):
            return token
        try:
            return str(json.loads(token))
        except ValueError as error:
            raise self.error(f"{token} is no JSON string ({error})", self.position - len(token)) from None

    def error(self, problem: str, position: int | None = None, *, remedy: str | None = None) -> ParseError:
        """The error to raise for `problem` at `position` (by default: what comes next), with the line and a caret."""
        if position is None:
            blank = _BLANK.match(self.text, self.position, self.end)
            position = blank.end() if blank is not None and "\n" not in blank[0] else self.position
        start = self.text.rfind("\n", 0, position) + 1
        stop = self.text.find("\n", position)
        line = self.text[start : len(self.text) if stop < 0 else stop]
        number, column = self.text.count("\n", 0, start) + 1, position - start
        shown = max(0, column - _WIDTH // 2)
        excerpt = line[shown : shown + _WIDTH].replace("\t", " ").rstrip("\r")
        message = f"{problem}\n  {excerpt}\n  {' ' * (column - shown)}^"
        return ParseError(message, where=f"line {number}, column {column + 1}", remedy=remedy)
