import io

import pytest
from capgraph.executors.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_what_is_done_and_a_clean_line_afterwards() -> None:
    stream = Terminal()
    with Progress("capturing", 2, stream=stream) as progress:
        assert stream.getvalue().endswith("capturing 0/2 ...")
        progress.advance("batch 8")
        assert stream.getvalue().endswith("batch 8 1/2 ...")
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_without_a_total_nothing_is_counted() -> None:
    stream = Terminal()
    with Progress("importing", stream=stream):
        assert stream.getvalue().endswith("importing ...")


def test_a_file_sees_nothing() -> None:
    stream = io.StringIO()
    with Progress("importing", stream=stream) as progress:
        progress.advance()
    assert stream.getvalue() == ""


def test_the_line_goes_away_when_the_work_fails() -> None:
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), Progress("dividing", stream=stream):
        _ = 1 / 0
    assert stream.getvalue().endswith("\r\x1b[2K")
