"""Composed rotary embeddings become one op, tables and all; what only looks like them stays."""

import numpy as np
import pytest
from capgraph.ir.constant import Constant, Residence
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.recognize.recognize_rotary import RecognizeRotary

from tests.passes.checking import check_pass


def graph(inputs: str, *lines: str) -> str:
    """A graph that returns %y."""
    return "\n  ".join([f"graph @main({inputs}) {{", *lines]) + "\n  return %y\n}\n"


X = "%x: f32[B, 2, T, 4]"
ANGLES = (
    "%two: f32[B, T, 4] = concat(%f, %f) {axis = -1}",
    "%c3: f32[B, T, 4] = cos(%two)",
    "%s3: f32[B, T, 4] = sin(%two)",
    "%c: f32[B, 1, T, 4] = reshape(%c3) {shape = [B, 1, T, 4]}",
    "%s: f32[B, 1, T, 4] = reshape(%s3) {shape = [B, 1, T, 4]}",
)
SLICES = (
    "%a: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [0], ends = [2], steps = [1]}",
    "%b: f32[B, 2, T, 2] = slice(%x) {axes = [-1], starts = [2], ends = [9223372036854775807], steps = [1]}",
)
SPLIT = ("%a: f32[B, 2, T, 2], %b: f32[B, 2, T, 2] = split(%x) {axis = -1, sizes = [2, 2]}",)
TURN = ("%n: f32[B, 2, T, 2] = neg(%b)", "%r: f32[B, 2, T, 4] = concat(%n, %a) {axis = -1}")
SUM = (
    "%xc: f32[B, 2, T, 4] = mul(%x, %c)",
    "%rs: f32[B, 2, T, 4] = mul(%r, %s)",
    "%y: f32[B, 2, T, 4] = add(%xc, %rs)",
)
ROTARY = "%y: f32[B, 2, T, 4] = rotary_embedding(%x, %hc, %hs, _)"


@pytest.mark.parametrize("parts", [SLICES, SPLIT], ids=["slices", "split"])
def test_rotated_halves_with_computed_angles(parts):
    inputs = f"{X}, %f: f32[B, T, 2]"
    halves = (
        "%p: f32[B, T, 2] = cos(%f)",
        "%p1: f32[B, 1, T, 2] = reshape(%p) {shape = [B, 1, T, 2]}",
        "%hc: f32[B, T, 2] = reshape(%p1) {shape = [B, T, 2]}",
        "%q: f32[B, T, 2] = sin(%f)",
        "%q1: f32[B, 1, T, 2] = reshape(%q) {shape = [B, 1, T, 2]}",
        "%hs: f32[B, T, 2] = reshape(%q1) {shape = [B, T, 2]}",
    )
    check_pass(RecognizeRotary(), graph(inputs, *ANGLES, *parts, *TURN, *SUM), graph(inputs, *halves, ROTARY))


def test_tables_that_positions_select_from_one_for_all_samples():
    inputs = f"{X}, %i: i64[1, T]"
    table = "dense<f32[3, 4]: [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0]>"
    half = "dense<f32[3, 2]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>"
    before = (
        f"%t: f32[3, 4] = constant() {{value = {table}}}",
        "%g: f32[1, T, 4] = gather(%t, %i)",
        "%c: f32[1, 1, T, 4] = unsqueeze(%g) {axes = [1]}",
        "%s: f32[1, 1, T, 4] = neg(%c)",
        *SLICES,
        *TURN,
        *SUM,
    )
    after = (
        f"%t: f32[3, 2] = constant() {{value = {half}}}",
        "%g: f32[1, T, 2] = gather(%t, %i)",
        "%g1: f32[1, 1, T, 2] = reshape(%g) {shape = [1, 1, T, 2]}",
        "%g2: f32[1, T, 2] = reshape(%g1) {shape = [1, T, 2]}",
        "%hc: f32[B, T, 2] = expand(%g2) {shape = [B, T, 2]}",
        f"%t1: f32[3, 2] = constant() {{value = {half}}}",
        "%k: f32[1, T, 2] = gather(%t1, %i)",
        "%k1: f32[1, 1, T, 2] = reshape(%k) {shape = [1, 1, T, 2]}",
        "%k2: f32[1, 1, T, 2] = neg(%k1)",
        "%k3: f32[1, T, 2] = reshape(%k2) {shape = [1, T, 2]}",
        "%hs: f32[B, T, 2] = expand(%k3) {shape = [B, T, 2]}",
        ROTARY,
    )
    check_pass(RecognizeRotary(), graph(inputs, *before), graph(inputs, *after), numeric=False)


@pytest.mark.parametrize(("numbers", "is_known"), [([0, 1, 0, 1], True), ([0, 1, 0, 2], False)])
@pytest.mark.parametrize("lies", ["on a device", "nowhere yet"])
def test_a_table_that_is_not_at_hand_is_read_once_and_halved_where_it_lies(lies, numbers, is_known):
    reads = []
    content = np.array([numbers] * 3, np.float32)
    place = Residence("cuda:0", 0, content.strides, content) if lies == "on a device" else None
    table = Constant.elsewhere(TensorType(DType.F32, (3, 4)), lambda: reads.append(1) or content, place)
    lines = (
        f"%t: f32[3, 4] = constant() {{value = dense<f32[3, 4], #{table.digest}>}}",
        "%g: f32[1, T, 4] = gather(%t, %i)",
        "%c: f32[1, 1, T, 4] = unsqueeze(%g) {axes = [1]}",
        "%s: f32[1, 1, T, 4] = neg(%c)",
    )
    made = parse(graph(f"{X}, %i: i64[1, T]", *lines, *SLICES, *TURN, *SUM), constants={table.digest: table})
    Pipeline(((RecognizeRotary(),),)).run(made, check="structure")
    is_found = "rotary_embedding" in [node.op.name for node in made.nodes]
    assert is_found is (is_known and place is not None)
    assert len(reads) == (place is not None)
    halves = [node.attrs["value"] for node in made.nodes if node.op.name == "constant"]
    if is_found:
        assert halves[0] == halves[1]
        assert not halves[0].is_at_hand
        np.testing.assert_array_equal(halves[0].array, content[:, :2])


def test_interleaved_pairs():
    """GPT-J: pairs joined by stack and flatten, angles repeated next to each other."""
    inputs = f"{X}, %f: f32[B, T, 2, 1]"
    before = (
        "%pairs: f32[B, T, 2, 2] = expand(%f) {shape = [B, T, 2, 2]}",
        "%c: f32[B, 1, T, 4] = reshape(%pairs) {shape = [B, 1, T, 4]}",
        "%s: f32[B, 1, T, 4] = neg(%c)",
        "%a: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [0], ends = [4], steps = [2]}",
        "%b: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [1], ends = [4], steps = [2]}",
        "%n: f32[B, 2, T, 2] = neg(%b)",
        "%n1: f32[B, 2, T, 2, 1] = reshape(%n) {shape = [B, 2, T, 2, 1]}",
        "%a1: f32[B, 2, T, 2, 1] = reshape(%a) {shape = [B, 2, T, 2, 1]}",
        "%j: f32[B, 2, T, 2, 2] = concat(%n1, %a1) {axis = -1}",
        "%r: f32[B, 2, T, 4] = reshape(%j) {shape = [B, 2, T, 4]}",
        *SUM,
    )
    after = (
        "%c: f32[B, 1, T, 2] = reshape(%f) {shape = [B, 1, T, 2]}",
        "%hc: f32[B, T, 2] = reshape(%c) {shape = [B, T, 2]}",
        "%d: f32[B, 1, T, 2] = reshape(%f) {shape = [B, 1, T, 2]}",
        "%s: f32[B, 1, T, 2] = neg(%d)",
        "%hs: f32[B, T, 2] = reshape(%s) {shape = [B, T, 2]}",
        "%y: f32[B, 2, T, 4] = rotary_embedding(%x, %hc, %hs, _) {interleaved = true}",
    )
    check_pass(RecognizeRotary(), graph(inputs, *before), graph(inputs, *after))


TABLES = "%hc: f32[B, T, 1], %hs: f32[B, T, 1]"


def test_a_head_of_which_the_first_part_is_rotated():
    before = (
        "%a: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [0], ends = [2], steps = [1]}",
        "%b: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [2], ends = [4], steps = [1]}",
        "%r: f32[B, 2, T, 2] = rotary_embedding(%a, %hc, %hs, _)",
        "%y: f32[B, 2, T, 4] = concat(%r, %b) {axis = 3}",
    )
    after = "%y: f32[B, 2, T, 4] = rotary_embedding(%x, %hc, %hs, _) {rotary_dim = 2}"
    inputs = f"{X}, {TABLES}"
    check_pass(RecognizeRotary(), graph(inputs, *before), graph(inputs, after))


def test_heads_are_rotated_before_they_are_parted():
    inputs = f"%x: f32[B, T, 4], {TABLES}"
    before = (
        "%a: f32[B, T, 2, 2] = reshape(%x) {shape = [B, T, 2, 2]}",
        "%b: f32[B, 2, T, 2] = transpose(%a) {perm = [0, 2, 1, 3]}",
        "%y: f32[B, 2, T, 2] = rotary_embedding(%b, %hc, %hs, _)",
    )
    after = (
        "%r: f32[B, T, 4] = rotary_embedding(%x, %hc, %hs, _) {heads = 2}",
        "%a: f32[B, T, 2, 2] = reshape(%r) {shape = [B, T, 2, 2]}",
        "%y: f32[B, 2, T, 2] = transpose(%a) {perm = [0, 2, 1, 3]}",
    )
    check_pass(RecognizeRotary(), graph(inputs, *before), graph(inputs, *after))


@pytest.mark.parametrize(
    ("inputs", "lines"),
    [
        # tables that nothing shows to repeat the angles
        (f"{X}, %c: f32[B, 1, T, 4], %s: f32[B, 1, T, 4]", (*SLICES, *TURN, *SUM)),
        # the first half negated
        (
            f"{X}, %f: f32[B, T, 2]",
            (
                *ANGLES,
                *SLICES,
                "%n: f32[B, 2, T, 2] = neg(%a)",
                "%r: f32[B, 2, T, 4] = concat(%n, %b) {axis = 3}",
                *SUM,
            ),
        ),
        # a table that differs from head to head
        (
            f"{X}, %f: f32[2, T, 2]",
            (
                "%c: f32[2, T, 4] = concat(%f, %f) {axis = -1}",
                "%s: f32[2, T, 4] = neg(%c)",
                *SLICES,
                *TURN,
                *SUM,
            ),
        ),
    ],
)
def test_what_only_looks_like_rotary_embedding_stays(inputs, lines):
    check_pass(RecognizeRotary(), graph(inputs, *lines), None)


def test_in_f64_it_stays_for_onnx_has_no_operator_for_it():
    composed = graph(f"{X}, %f: f32[B, T, 2]", *ANGLES, *SLICES, *TURN, *SUM)
    check_pass(RecognizeRotary(), composed.replace("f32", "f64"), None)


# ---- a part of a head, whose halves are slices of the head


def part(first: str, second: str, *, read_from: str = "%x", interleaved: bool = False) -> tuple[str, ...]:
    """Features 0 to 4 of 6, rotated by halves that are slices as given."""
    pairs = (
        "%n1: f32[B, 2, T, 2, 1] = reshape(%n) {shape = [B, 2, T, 2, 1]}",
        "%a1: f32[B, 2, T, 2, 1] = reshape(%a) {shape = [B, 2, T, 2, 1]}",
        "%j: f32[B, 2, T, 2, 2] = concat(%n1, %a1) {axis = -1}",
        "%r: f32[B, 2, T, 4] = reshape(%j) {shape = [B, 2, T, 4]}",
    )
    return (
        "%p: f32[B, 2, T, 4] = slice(%x) {axes = [3], starts = [0], ends = [4], steps = [1]}",
        f"%a: f32[B, 2, T, 2] = slice(%x) {{axes = [-1], {first}}}",
        f"%b: f32[B, 2, T, 2] = slice({read_from}) {{axes = [3], {second}}}",
        "%n: f32[B, 2, T, 2] = neg(%b)",
        *(pairs if interleaved else ("%r: f32[B, 2, T, 4] = concat(%n, %a) {axis = -1}",)),
        "%xc: f32[B, 2, T, 4] = mul(%p, %c)",
        "%rs: f32[B, 2, T, 4] = mul(%r, %s)",
        "%z: f32[B, 2, T, 4] = add(%xc, %rs)",
        "%o: f32[B, 2, T, 2] = slice(%x) {axes = [3], starts = [4], ends = [6], steps = [1]}",
        "%y: f32[B, 2, T, 6] = concat(%z, %o) {axis = -1}",
    )


PART_INPUTS = "%x: f32[B, 2, T, 6], %w: f32[B, 2, T, 6], %f: f32[B, T, 2]"
FIRST_HALF, SECOND_HALF = "starts = [0], ends = [2], steps = [1]", "starts = [-4], ends = [4], steps = [1]"


def test_halves_that_are_slices_of_the_whole_head():
    """What canonicalize makes of Phi's slices of a slice."""
    after = (
        "%p: f32[B, T, 2] = cos(%f)",
        "%p1: f32[B, 1, T, 2] = reshape(%p) {shape = [B, 1, T, 2]}",
        "%hc: f32[B, T, 2] = reshape(%p1) {shape = [B, T, 2]}",
        "%q: f32[B, T, 2] = sin(%f)",
        "%q1: f32[B, 1, T, 2] = reshape(%q) {shape = [B, 1, T, 2]}",
        "%hs: f32[B, T, 2] = reshape(%q1) {shape = [B, T, 2]}",
        "%y: f32[B, 2, T, 6] = rotary_embedding(%x, %hc, %hs, _) {rotary_dim = 4}",
    )
    before = graph(PART_INPUTS, *ANGLES, *part(FIRST_HALF, SECOND_HALF))
    check_pass(RecognizeRotary(), before, graph(PART_INPUTS, *after))


PAIRS_IN_PART = ("starts = [0], ends = [3], steps = [2]", "starts = [1], ends = [4], steps = [2]")
REPEATED_PAIRS = (
    "%g: f32[B, T, 2, 1] = reshape(%f) {shape = [B, T, 2, 1]}",
    "%pairs: f32[B, T, 2, 2] = expand(%g) {shape = [B, T, 2, 2]}",
    "%c: f32[B, 1, T, 4] = reshape(%pairs) {shape = [B, 1, T, 4]}",
    "%s: f32[B, 1, T, 4] = neg(%c)",
)


def test_neighbors_that_are_slices_of_the_whole_head():
    after = (
        "%g: f32[B, T, 2, 1] = reshape(%f) {shape = [B, T, 2, 1]}",
        "%c: f32[B, 1, T, 2] = reshape(%g) {shape = [B, 1, T, 2]}",
        "%hc: f32[B, T, 2] = reshape(%c) {shape = [B, T, 2]}",
        "%d: f32[B, 1, T, 2] = reshape(%g) {shape = [B, 1, T, 2]}",
        "%s: f32[B, 1, T, 2] = neg(%d)",
        "%hs: f32[B, T, 2] = reshape(%s) {shape = [B, T, 2]}",
        "%y: f32[B, 2, T, 6] = rotary_embedding(%x, %hc, %hs, _) {interleaved = true, rotary_dim = 4}",
    )
    before = graph(PART_INPUTS, *REPEATED_PAIRS, *part(*PAIRS_IN_PART, interleaved=True))
    check_pass(RecognizeRotary(), before, graph(PART_INPUTS, *after))


@pytest.mark.parametrize(
    "lines",
    [
        # a half from outside the part
        (*ANGLES, *part(FIRST_HALF, "starts = [3], ends = [5], steps = [1]")),
        # the halves swapped
        (*ANGLES, *part(SECOND_HALF, FIRST_HALF)),
        # neighbors in the place of halves, and halves in that of neighbors
        (*ANGLES, *part(*PAIRS_IN_PART)),
        (*REPEATED_PAIRS, *part(FIRST_HALF, SECOND_HALF, interleaved=True)),
        # a half of another tensor
        (*ANGLES, *part(FIRST_HALF, SECOND_HALF, read_from="%w")),
    ],
    ids=["outside", "swapped", "neighbors", "halves", "another"],
)
def test_what_is_not_made_of_the_halves_of_the_part_stays(lines):
    check_pass(RecognizeRotary(), graph(PART_INPUTS, *lines), None)


def test_neighbors_of_the_steps_behind_the_first():
    """EVA: the class token is not rotated, and slices of a slice are one."""
    tables = (
        "%pairs: f32[4, 2, 2] = expand(%f) {shape = [4, 2, 2]}",
        "%c: f32[1, 1, 4, 4] = reshape(%pairs) {shape = [1, 1, 4, 4]}",
        "%s: f32[1, 1, 4, 4] = neg(%c)",
    )
    before = (
        *tables,
        "%p: f32[B, 2, 4, 4] = slice(%x) {axes = [2], starts = [1], ends = [5], steps = [1]}",
        "%a: f32[B, 2, 4, 2] = slice(%x) {axes = [2, 3], starts = [1, 0], ends = [5, 4], steps = [1, 2]}",
        "%b: f32[B, 2, 4, 2] = slice(%x) {axes = [2, 3], starts = [SECOND, 1], ends = [ENDS, 4], steps = [1, 2]}",
        "%n: f32[B, 2, 4, 2] = neg(%b)",
        "%n1: f32[B, 2, 4, 2, 1] = reshape(%n) {shape = [B, 2, 4, 2, 1]}",
        "%a1: f32[B, 2, 4, 2, 1] = reshape(%a) {shape = [B, 2, 4, 2, 1]}",
        "%j: f32[B, 2, 4, 2, 2] = concat(%n1, %a1) {axis = -1}",
        "%r: f32[B, 2, 4, 4] = reshape(%j) {shape = [B, 2, 4, 4]}",
        "%xc: f32[B, 2, 4, 4] = mul(%p, %c)",
        "%rs: f32[B, 2, 4, 4] = mul(%r, %s)",
        "%y: f32[B, 2, 4, 4] = add(%xc, %rs)",
    )
    after = (
        "%p: f32[B, 2, 4, 4] = slice(%x) {axes = [2], starts = [1], ends = [5], steps = [1]}",
        "%c: f32[1, 1, 4, 2] = reshape(%f) {shape = [1, 1, 4, 2]}",
        "%hc1: f32[1, 4, 2] = reshape(%c) {shape = [1, 4, 2]}",
        "%hc: f32[B, 4, 2] = expand(%hc1) {shape = [B, 4, 2]}",
        "%d: f32[1, 1, 4, 2] = reshape(%f) {shape = [1, 1, 4, 2]}",
        "%s: f32[1, 1, 4, 2] = neg(%d)",
        "%hs1: f32[1, 4, 2] = reshape(%s) {shape = [1, 4, 2]}",
        "%hs: f32[B, 4, 2] = expand(%hs1) {shape = [B, 4, 2]}",
        "%y: f32[B, 2, 4, 4] = rotary_embedding(%p, %hc, %hs, _) {interleaved = true}",
    )
    inputs = "%x: f32[B, 2, 5, 4], %f: f32[4, 2, 1]"
    same = graph(inputs, *before).replace("SECOND", "1").replace("ENDS", "5")
    check_pass(RecognizeRotary(), same, graph(inputs, *after))
    check_pass(RecognizeRotary(), graph(inputs, *before).replace("SECOND", "0").replace("ENDS", "4"), None)


def test_heads_behind_positions_are_transposed_there_and_back():
    """GPT-J: heads are rotated where they lie, and tables have the positions in front of them."""
    before = (
        *ANGLES[:3],
        "%c: f32[B, T, 1, 4] = reshape(%c3) {shape = [B, T, 1, 4]}",
        "%s: f32[B, T, 1, 4] = reshape(%s3) {shape = [B, T, 1, 4]}",
        *(line.replace("B, 2, T", "B, T, 2") for line in (*SPLIT, *TURN, *SUM)),
    )
    after = (
        "%p: f32[B, T, 2] = cos(%f)",
        "%p1: f32[B, T, 1, 2] = reshape(%p) {shape = [B, T, 1, 2]}",
        "%hc: f32[B, T, 2] = reshape(%p1) {shape = [B, T, 2]}",
        "%q: f32[B, T, 2] = sin(%f)",
        "%q1: f32[B, T, 1, 2] = reshape(%q) {shape = [B, T, 1, 2]}",
        "%hs: f32[B, T, 2] = reshape(%q1) {shape = [B, T, 2]}",
        "%o: f32[B, T, 8] = reshape(%x) {shape = [B, T, 8]}",
        "%z: f32[B, T, 8] = rotary_embedding(%o, %hc, %hs, _) {heads = 2}",
        "%r: f32[B, T, 2, 4] = reshape(%z) {shape = [B, T, 2, 4]}",
        "%t: f32[B, 2, T, 4] = transpose(%r) {perm = [0, 2, 1, 3]}",
        "%y: f32[B, T, 2, 4] = transpose(%t) {perm = [0, 2, 1, 3]}",
    )
    inputs = "%x: f32[B, T, 2, 4], %f: f32[B, T, 2]"
    check_pass(RecognizeRotary(), graph(inputs, *before), graph(inputs, *after))
