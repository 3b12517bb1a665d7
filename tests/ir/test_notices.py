"""What programs say of themselves: once a subject, by warnings and by logging, at the place of the caller."""

import pytest
from capgraph.ir.notices import CapgraphWarning, Notices


def test_each_subject_is_said_once_in_both_ways_at_the_callers_place(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices("mlp")

    def say_both() -> None:
        notices.say("a", "first", "one thing")
        notices.say("b", "second", "another")

    with pytest.warns(CapgraphWarning) as caught:
        say_both()
    say_both()
    assert [str(each.message) for each in caught] == [
        "first\n  at model mlp\n  try: one thing",
        "second\n  at model mlp\n  try: another",
    ]
    assert {each.filename for each in caught} == {__file__}
    assert [record.getMessage() for record in caplog.records] == [str(each.message) for each in caught]
