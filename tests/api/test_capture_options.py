import io
from dataclasses import FrozenInstanceError
from typing import Any

import capgraph
import pytest
from capgraph.capture_options import replay_options
from capgraph.executors.progress import CaptureLine


def test_options_of_capture_are_checked() -> None:
    made = replay_options(
        mode="piecewise", dynamic=None, buckets=None, strict=True, capture={"beyond": "exact", "inputs": {"x": "copy"}}
    )
    assert (made.mode.value, made.beyond, made.policy_of("x").value) == ("piecewise", "exact", "copy")
    assert made.strict
    for capture in ({"beyond": "later"}, {"inputs": {"x": "teleport"}}, {"size": 1}):
        with pytest.raises(capgraph.UnsupportedError):
            replay_options(mode="full", dynamic=None, buckets=None, strict=False, capture=capture)


def test_options_of_capture_are_a_value_of_their_own() -> None:
    capture = capgraph.CaptureOptions(beyond="exact", keep_outside="add", progress=None)
    made = replay_options(mode="full", dynamic=None, buckets=None, strict=False, capture=capture)
    assert (made.beyond, made.kept_outside({}), made.progress) == ("exact", {"add"}, None)
    with pytest.raises(capgraph.UnsupportedError, match="budget=-1 is too little"):
        capgraph.CaptureOptions(budget=-1)
    with pytest.raises(FrozenInstanceError):
        capture.beyond = "eager"  # type: ignore[misc]


def test_ops_are_kept_outside_by_name_or_by_size() -> None:
    made = replay_options(mode="full", dynamic=None, buckets=None, strict=False, capture={"keep_outside": ["add"]})
    assert made.kept_outside({}) == {"add"}
    for wrong in ("no_such_op", {"add": True}, [3]):
        with pytest.raises(capgraph.UnsupportedError, match="keep_outside"):
            replay_options(mode="full", dynamic=None, buckets=None, strict=False, capture={"keep_outside": wrong})


def test_capturing_up_front_counts_on_the_terminal() -> None:
    line = CaptureLine()
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", shown)
        for done, what in enumerate(["B = 4", "B = 2", ""]):
            line(done, 2, what)
    assert "capturing B = 2 1/2" in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(
    ("capture", "remedy"),
    [
        ({"inputs": "copy"}, "a dict"),
        ({"budget": "1G"}, "None or an integer"),
        ({"budget": -5}, "0 or more"),
        ({"budget": True}, "None or an integer"),
        ({"warm_ups": "two"}, "an integer"),
        ({"warm_ups": -1}, "0 or more"),
        ({"copy_outputs": "no"}, "bool"),
        ({"up_front": 1}, "bool"),
        ({"progress": 3}, "None or a function"),
        ({"states": {}}, "None or StateStore"),
        ({"keep_outside": 3}, "None or a name or names"),
        ({"beyond": 3}, "one of eager, exact"),
        ([3], "None or CaptureOptions or a dict"),
    ],
)
def test_options_of_another_kind_are_told_what_they_are(capture: Any, remedy: str) -> None:
    with pytest.raises(capgraph.UnsupportedError) as caught:
        replay_options(mode="full", dynamic=None, buckets=None, strict=False, capture=capture)
    assert remedy in (caught.value.remedy or "")


def test_a_number_is_a_range_up_to_it_and_a_ladder_of_one() -> None:
    made = replay_options(mode="full", dynamic={"B": 8}, buckets={"B": 4, "T": range(1, 3)}, strict=False, capture=None)
    assert made.dynamic == {"B": (1, 8)}
    assert made.buckets == {"B": (4,), "T": (1, 2)}


@pytest.mark.parametrize("sizes", [True, 8.5, "48", None])
@pytest.mark.parametrize("option", ["dynamic", "buckets"])
def test_what_gives_no_sizes_is_one_clear_error(option: str, sizes: Any) -> None:
    given: dict[str, Any] = {"dynamic": {"B": 8}, "buckets": None, option: {"B": sizes}}
    with pytest.raises(capgraph.UnsupportedError, match=f"{option} gives .* for 'B'"):
        replay_options(mode="full", strict=False, capture=None, **given)


@pytest.mark.parametrize("options", [{"dynamic": ["B"]}, {"buckets": 3}, {"dynamic": {"B": (1, 2)}, "buckets": "B"}])
def test_sizes_that_are_no_dict_are_refused(options: Any) -> None:
    with pytest.raises(capgraph.UnsupportedError, match="is not known"):
        replay_options(**{"dynamic": None, "buckets": None, **options}, mode="full", strict=False, capture=None)
