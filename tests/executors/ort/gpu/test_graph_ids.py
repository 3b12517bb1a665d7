import pytest
from capgraph.executors.ort.gpu.session import Bound, GraphIds
from capgraph.ir.errors import CaptureError

HERE = (Bound("x", (4, 8), 0x1000), Bound("y", (4, 8), 0x2000))


def test_a_number_stands_for_its_shapes_and_addresses():
    ids = GraphIds()
    number = ids.take(HERE)
    ids.check(number, HERE)
    ids.check(number, tuple(HERE))
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ((HERE[0]._replace(shape=(8, 8)), HERE[1]), r"x \[4, 8\] at 0x1000, not x \[8, 8\] at 0x1000"),
        ((HERE[0], HERE[1]._replace(address=0x3000)), r"y \[4, 8\] at 0x2000, not y \[4, 8\] at 0x3000"),
    ],
)
def test_another_shape_or_address_is_refused(other: tuple[Bound, ...], told: str):
    ids = GraphIds()
    number = ids.take(HERE)
    with pytest.raises(CaptureError, match=told):
        ids.check(number, other)


def test_numbers_are_never_used_again():
    ids = GraphIds()
    first = ids.take(HERE)
    ids.release(first)
    ids.release(first)
    with pytest.raises(CaptureError, match="given back"):
        ids.check(first, HERE)
    assert ids.take(HERE) != first
