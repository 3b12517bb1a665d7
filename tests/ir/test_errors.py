"""Errors say what, where and what to do, survive pickling, and are all caught by one class."""

import pickle

import pytest
from capgraph.ir import errors
from capgraph.ir.errors import CapgraphError, ShapeError, cause_of

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CapgraphError)]


def test_the_parts_stand_on_lines_of_their_own() -> None:
    assert str(ShapeError("sizes differ")) == "sizes differ"
    full = ShapeError("sizes differ", where="%y = add(%x)", remedy="insert a reshape")
    assert str(full) == "sizes differ\n  at %y = add(%x)\n  try: insert a reshape"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_explained_and_survives_pickling(kind: type[CapgraphError]) -> None:
    assert kind.__doc__
    error = pickle.loads(pickle.dumps(kind("what", where="where", remedy="remedy")))
    assert type(error) is kind
    assert str(error) == "what\n  at where\n  try: remedy"
    with pytest.raises(CapgraphError):
        raise error


def test_the_first_place_is_kept() -> None:
    error = ShapeError("sizes differ")
    assert error.located("first") is error
    error.located("second")
    assert error.where == "first"


def test_an_error_is_never_its_own_cause() -> None:
    cause = ValueError("bad")
    assert cause_of(cause) is cause
    with pytest.raises(ShapeError) as caught:
        raise ShapeError("sizes differ") from cause
    assert cause_of(caught.value) is cause, "it is sent on with the cause that it had"
    assert cause_of(ShapeError("sizes differ")) is None


def test_the_model_stands_behind_the_place() -> None:
    error = ShapeError("sizes differ", where="%y = add(%x)").of_model("net", "insert a reshape")
    assert str(error) == "sizes differ\n  at %y = add(%x) of model net\n  try: insert a reshape"
    error = ShapeError("sizes differ", remedy="squeeze it").of_model("", "insert a reshape")
    assert str(error) == "sizes differ\n  at a model without a name\n  try: squeeze it"
