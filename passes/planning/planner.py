"""The planner: from a graph and concrete sizes to a plan."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from ...ir.errors import InputError
from ...ir.graph import Graph, Node
from ...ir.plan import Buffer, Measured, Place, Plan, Segment, Step, StepKind
from ...ir.target import Target
from .arena import Block, lower_bound, place
from .bodies import bodies_of
from .bounds import CutToMeasured
from .check_plan import check_plan
from .lowering import Kept, Lowering, Scratch, drawn_calls, planning_pipeline
from .partition import CapturePolicy, partition
from .results import set_results_apart
from .storage import BufferGroup, StoragePlan, assign_storage, is_planned

checks_plans = False
"""Whether every plan is checked as it is made, and the graph after every pass before: tests set this."""


@dataclass(frozen=True)
class PlanPolicy:
    """What a plan captures, by which kernels, and which memory it may use.

    `capture` says what is captured, `lowering` how the graph is brought to the target's kernels. `donated` names inputs
    that the caller gives up: results may be written over them. `resident` names inputs that lie outside of the arena,
    in memory that no step writes: what was loaded there stays for later calls. Results of `fresh_bytes` and more for
    each step that touches them lie in memory that each run has anew; None for results in the arena.
    """

    capture: CapturePolicy = field(default=CapturePolicy())
    lowering: Lowering = field(default=Lowering())
    donated: Collection[str] = ()
    resident: Collection[str] = ()
    fresh_bytes: int | None = None


@dataclass(frozen=True)
class Lowered:
    """A graph at known sizes, brought to a target's kernels, and how; `measured` are sizes that a run tells."""

    graph: Graph
    measured: Measured
    rewrites: Mapping[str, int]


def make_plan(
    graph: Graph,
    sizes: Mapping[str, int],
    target: Target,
    policy: PlanPolicy = PlanPolicy(),  # immutable
    known: Lowered | None = None,
) -> Plan:
    """Plans `graph` at `sizes` (every symbol of its inputs). The graph itself is not changed.

    `known` is what `lowered` gave for it, which becomes the plan's.

    Raises `ShapeError` when the sizes do not fit the graph, `InputError` when it has no input of a name that the policy
    gives, or one is donated and resident, `MiscompiledError` where a pass is found to be wrong.
    """
    _check_inputs(graph, policy)
    known = known or lowered(graph, sizes, target, policy)
    plan = _planned(known.graph, sizes, target, policy)
    plan = replace(plan, measured=known.measured, rewrites=known.rewrites)
    if checks_plans:
        check_plan(plan)
    return plan


def lowered(graph: Graph, sizes: Mapping[str, int], target: Target, policy: PlanPolicy) -> Lowered:
    """What is planned of `graph` at `sizes`. Raises as `make_plan`."""
    lowering = policy.lowering
    pipeline = planning_pipeline(sizes, target, policy.capture, lowering)
    samples = drawn_calls(graph, sizes) if lowering.check == "numeric" else None
    check = "structure" if checks_plans and lowering.check == "none" else lowering.check
    bound, report = pipeline.applied(graph, check=check, samples=samples)
    measured = next((each.measured for each in report.calls if isinstance(each, CutToMeasured)), Measured())
    return Lowered(bound, measured, {each.name: each.rewrites for each in report.totals() if each.rewrites})


def _planned(graph: Graph, sizes: Mapping[str, int], target: Target, policy: PlanPolicy) -> Plan:
    """The plan of a graph whose sizes are known."""
    parts = partition(graph, target, policy.capture, policy.lowering.captures)
    graph.reorder(parts.order)
    storage = assign_storage(graph, target, policy.donated, policy.resident)
    if policy.fresh_bytes is not None:
        set_results_apart(graph, storage, policy.fresh_bytes)
    _keep(graph, storage, policy.lowering.kept)
    own = _add_scratch(graph, storage, policy.lowering.scratch) if policy.lowering.scratch else dict[Node, int]()

    def body_plan(body: Graph) -> Plan:
        inputs = [value.name for value in body.inputs]
        return _planned(body, sizes, target, replace(policy, donated=(), resident=inputs))

    bodies = _add_bodies(graph, storage, body_plan, own) if target.plans_bodies else dict[Graph, Plan]()
    return _assemble(graph, sizes, target.alignment, storage, parts.segments, own, bodies)


def _check_inputs(graph: Graph, policy: PlanPolicy) -> None:
    names = {value.name for value in graph.inputs}
    for given, use in ((policy.donated, "to donate"), (policy.resident, "to keep outside of the arena")):
        unknown = sorted(set(given) - names)
        if unknown:
            raise InputError(f"there is no input {unknown[0]} {use}", remedy="name inputs of the graph")
    both = sorted(set(policy.donated) & set(policy.resident))
    if both:
        raise InputError(f"input {both[0]} is to be donated and to be resident", remedy="a resident input is kept")


def _add_bodies(
    graph: Graph, storage: StoragePlan, body_plan: Callable[[Graph], Plan], own: dict[Node, int]
) -> Mapping[Graph, Plan]:
    """Plans of the bodies of control flow, and the arena in which those of one node take turns as its scratch."""
    found: dict[Graph, Plan] = {}
    for step, node in enumerate(graph.nodes):
        made = {body: body_plan(body) for body in bodies_of(node)}
        nbytes = max((plan.arena_bytes for plan in made.values()), default=0)
        if nbytes:
            own[node] = len(storage.groups)
            storage.groups.append(BufferGroup(Place.ARENA, nbytes, step, step, f"bodies of {node.op.name}"))
        found.update(made)
    return found


def _keep(graph: Graph, storage: StoragePlan, kept: Kept | None) -> None:
    """Lets what a later node reads as well live until then."""
    steps = {node: step for step, node in enumerate(graph.nodes)}
    for value, node in kept(graph, storage.views) if kept is not None else ():
        group = storage.groups[storage.views[value].buffer]
        group.last = max(group.last, steps[node])


def _add_scratch(graph: Graph, storage: StoragePlan, scratch: Scratch) -> dict[Node, int]:
    """Groups for what kernels want during their own step, by node."""
    found: dict[Node, int] = {}
    for step, node in enumerate(graph.nodes):
        is_planned_work = node not in storage.aliases and all(map(is_planned, (*node.operands, *node.outputs)))
        nbytes = scratch(node, storage.views) if is_planned_work else 0
        if nbytes:
            found[node] = len(storage.groups)
            storage.groups.append(BufferGroup(Place.ARENA, nbytes, step, step, f"scratch of {node.outputs[0].name}"))
    return found


def _assemble(
    graph: Graph,
    sizes: Mapping[str, int],
    alignment: int,
    storage: StoragePlan,
    segments: tuple[Segment, ...],
    scratch: Mapping[Node, int],
    bodies: Mapping[Graph, Plan],
) -> Plan:
    in_arena = [index for index, group in enumerate(storage.groups) if group.place is Place.ARENA]
    blocks = [_block(storage.groups[index], alignment) for index in in_arena]
    layout = place(blocks)
    offsets = dict(zip(in_arena, layout.offsets, strict=True))
    buffers = tuple(
        Buffer(index, group.place, group.nbytes, offsets.get(index, 0), group.first, group.last, group.label)
        for index, group in enumerate(storage.groups)
    )
    steps = tuple(
        Step(index, node, StepKind.ALIAS if node in storage.aliases else StepKind.COMPUTE, scratch.get(node))
        for index, node in enumerate(graph.nodes)
    )
    return Plan(
        graph=graph,
        sizes=dict(sizes),
        buffers=buffers,
        views=storage.views,
        dynamic=storage.dynamic,
        steps=steps,
        segments=segments,
        arena_bytes=layout.nbytes,
        lower_bound=lower_bound(blocks),
        alignment=alignment,
        copies=storage.copies,
        bodies=bodies,
    )


def _block(group: BufferGroup, alignment: int) -> Block:
    return Block(-(-group.nbytes // alignment) * alignment, group.first, group.last)
