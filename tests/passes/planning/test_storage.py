from capgraph.ir.plan import Place

from tests.passes.planning.planned import CONTIGUOUS, UNBOUNDED, kinds, place, planned, shares, view


def test_views_cost_nothing() -> None:
    plan = planned("""
        graph @main(%x: f32[2, 3, 4]) {
          %a: f32[2, 3, 4] = exp(%x)
          %t: f32[4, 3, 2] = transpose(%a) {perm = [2, 1, 0]}
          %s: f32[4, 1, 2] = slice(%t) {axes = [1], starts = [1], ends = [2], steps = [1]}
          %u: f32[4, 2] = squeeze(%s) {axes = [1]}
          %y: f32[4, 2] = exp(%u)
          return %y
        }""")
    assert kinds(plan) == {"a": "compute", "t": "alias", "s": "alias", "u": "alias", "y": "compute"}
    assert shares(plan, "a", "t", "s", "u")
    assert view(plan, "t").strides == (4, 16, 48)
    assert (view(plan, "u").offset, view(plan, "u").strides) == (16, (4, 48))


def test_a_slice_backward_and_a_view_of_it() -> None:
    plan = planned("""
        graph @main(%x: f32[4, 3]) {
          %a: f32[4, 3] = exp(%x)
          %r: f32[4, 3] = slice(%a) {axes = [0], starts = [-1], ends = [-9], steps = [-1]}
          %t: f32[3, 4] = transpose(%r) {perm = [1, 0]}
          %y: f32[3, 4] = exp(%t)
          return %y
        }""")
    assert (view(plan, "r").offset, view(plan, "r").strides) == (36, (-12, 4))
    assert (view(plan, "t").offset, view(plan, "t").strides) == (36, (4, -12))


def test_a_reshape_that_numpy_has_to_copy_is_computed() -> None:
    plan = planned("""
        graph @main(%x: f32[2, 3]) {
          %a: f32[2, 3] = exp(%x)
          %t: f32[3, 2] = transpose(%a) {perm = [1, 0]}
          %r: f32[6] = reshape(%t) {shape = [6]}
          return %r
        }""")
    assert kinds(plan)["t"] == "alias"
    assert kinds(plan)["r"] == "compute"


def test_a_target_without_strides_computes_transposes() -> None:
    text = """
        graph @main(%x: f32[2, 3]) {
          %a: f32[2, 3] = exp(%x)
          %t: f32[3, 2] = transpose(%a) {perm = [1, 0]}
          %r: f32[6] = reshape(%t) {shape = [6]}
          return %r
        }"""
    assert kinds(planned(text, target=CONTIGUOUS)) == {"a": "compute", "t": "compute", "r": "alias"}


def test_an_operand_that_nothing_reads_again_is_overwritten() -> None:
    plan = planned("""
        graph @main(%x: f32[8]) {
          %a: f32[8] = exp(%x)
          %b: f32[8] = relu(%a)
          %c: f32[8] = add(%b, %x)
          return %c
        }""")
    assert shares(plan, "a", "b", "c")
    assert not shares(plan, "x", "a")


def test_an_operand_that_is_read_again_is_not_overwritten() -> None:
    plan = planned("""
        graph @main(%x: f32[8]) {
          %a: f32[8] = exp(%x)
          %b: f32[8] = sigmoid(%a)
          %c: f32[8] = mul(%b, %a)
          return %a, %c
        }""")
    assert not shares(plan, "a", "b")
    assert shares(plan, "b", "c")


def test_an_operand_that_is_also_read_transposed_is_not_overwritten() -> None:
    plan = planned("""
        graph @main(%x: f32[3, 3]) {
          %a: f32[3, 3] = exp(%x)
          %t: f32[3, 3] = transpose(%a) {perm = [1, 0]}
          %c: f32[3, 3] = sub(%a, %t)
          return %c
        }""")
    assert not shares(plan, "a", "c")


def test_an_operand_that_is_also_read_at_other_places_is_not_overwritten() -> None:
    plan = planned("""
        graph @main(%x: f32[8], %i: i64[8]) {
          %a: f32[8] = exp(%x)
          %c: f32[8] = scatter_elements(%a, %i, %a) {axis = 0}
          %d: f32[8] = add(%c, %c)
          return %d
        }""")
    assert not shares(plan, "a", "c")
    assert shares(plan, "c", "d")


def test_a_donated_input_is_overwritten() -> None:
    text = """
        graph @main(%x: f32[8], %y: f32[8]) {
          %a: f32[8] = add(%x, %y)
          return %a
        }"""
    assert not shares(planned(text), "x", "a")
    assert shares(planned(text, donated=["x"]), "x", "a")
    assert planned(text, donated=["x"]).arena_bytes < planned(text).arena_bytes


def test_parts_of_a_concat_are_written_in_place() -> None:
    plan = planned("""
        graph @main(%x: f32[2, 3], %y: f32[2, 3]) {
          %a: f32[2, 3] = exp(%x)
          %b: f32[2, 3] = relu(%y)
          %c: f32[4, 3] = concat(%a, %b) {axis = 0}
          return %c
        }""")
    assert shares(plan, "a", "b", "c")
    assert [view(plan, name).offset for name in "abc"] == [0, 24, 0]
    assert kinds(plan)["c"] == "alias"


def test_parts_that_lie_side_by_side_are_copied() -> None:
    plan = planned("""
        graph @main(%x: f32[2, 3], %y: f32[2, 3]) {
          %a: f32[2, 3] = exp(%x)
          %b: f32[2, 3] = relu(%y)
          %c: f32[2, 6] = concat(%a, %b) {axis = 1}
          return %c
        }""")
    assert kinds(plan)["c"] == "compute"


def test_parts_that_live_elsewhere_are_copied() -> None:
    plan = planned("""
        graph @main(%x: f32[2, 3]) {
          %a: f32[2, 3] = exp(%x)
          %c: f32[4, 3] = concat(%a, %a) {axis = 0}
          %d: f32[4, 3] = concat(%a, %x) {axis = 0}
          return %c, %d
        }""")
    assert kinds(plan) == {"a": "compute", "c": "compute", "d": "compute"}


def test_constants_lie_outside_of_the_arena() -> None:
    plan = planned("""
        graph @main(%x: f32[2]) {
          %k: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>}
          %a: f32[2] = add(%x, %k)
          return %a
        }""")
    assert place(plan, "k") is Place.CONSTANT
    assert plan.arena_bytes == 128


def test_sizes_that_depend_on_data_are_left_to_eager_steps() -> None:
    plan = planned(
        """
        graph @main(%x: f32[4]) {
          %n: i64[1, u0] = non_zero(%x)
          %m: i64[1, u0] = neg(%n)
          return %m
        }""",
        target=UNBOUNDED,
    )
    assert place(plan, "n") is place(plan, "m") is Place.DYNAMIC
    assert plan.graph.value("n") not in plan.views


# ---- states


def test_a_state_is_updated_in_place() -> None:
    plan = planned("""
        graph @main(%cache: f32[2, 2, 8, 4], %u: f32[2, 2, 1, 4], %p: i64[2]) {
          %new: f32[2, 2, 8, 4] = tensor_scatter(%cache, %u, %p)
          %y: f32[2, 2, 8, 4] = exp(%new)
          return %new -> %cache, %y
        }""")
    assert shares(plan, "cache", "new")
    assert place(plan, "cache") is Place.STATE
    assert plan.copies == {}


def test_readers_of_the_old_content_come_before_the_writer() -> None:
    plan = planned("""
        graph @main(%s: f32[4], %x: f32[4]) {
          %new: f32[4] = add(%s, %x)
          %old: f32[4] = exp(%s)
          return %new -> %s, %old
        }""")
    assert shares(plan, "s", "new")
    assert [step.node.outputs[0].name for step in plan.steps] == ["old", "new"]


def test_a_state_whose_old_content_is_returned_is_copied() -> None:
    plan = planned("""
        graph @main(%s: f32[4], %x: f32[4]) {
          %new: f32[4] = add(%s, %x)
          return %new -> %s, %s as old
        }""")
    assert not shares(plan, "s", "new")
    assert plan.copies == {0: 0}


def test_states_that_change_places_are_copied_apart_first() -> None:
    plan = planned("""
        graph @main(%a: f32[4], %b: f32[4], %c: f32[]) {
          %t: f32[4] = neg(%a)
          return %b as x -> %a, %a as y -> %b, %c as z -> %c, %t
        }""")
    assert plan.copies == {0: 0, 1: 1}
    assert {plan.buffer_of(plan.graph.outputs[i]).place for i in (0, 1)} == {Place.ARENA}


def test_a_state_that_becomes_a_view_of_itself_is_copied_apart_first() -> None:
    plan = planned("""
        graph @main(%a: f32[4, 4], %s: f32[]) {
          %t: f32[4, 4] = transpose(%a) {perm = [1, 0]}
          return %t -> %a
        }""")
    assert plan.copies == {0: 0}
    assert plan.buffer_of(plan.graph.outputs[0]).place is Place.ARENA


def test_a_resident_input_lies_outside_of_the_arena_and_is_never_written() -> None:
    text = """
        graph @main(%x: f32[8], %y: f32[8]) {
          %v: f32[2, 4] = reshape(%x) {shape = [2, 4]}
          %a: f32[2, 4] = relu(%v)
          %z: f32[8] = relu(%y)
          return %a, %z
        }"""
    plan, both = planned(text, resident=["x"]), planned(text, resident=["x", "y"])
    assert (place(plan, "x"), place(plan, "v"), place(plan, "y")) == (Place.INPUT, Place.INPUT, Place.ARENA)
    assert place(plan, "a") is Place.ARENA
    assert both.arena_bytes < plan.arena_bytes


def test_a_state_stays_a_state_where_it_is_called_resident() -> None:
    plan = planned(
        """
        graph @main(%old: f32[4]) {
          %new: f32[4] = exp(%old)
          return %new -> %old
        }""",
        resident=["old"],
    )
    assert place(plan, "old") is Place.STATE
