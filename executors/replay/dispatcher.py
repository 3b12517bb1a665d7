"""The dispatcher: plans of all allowed buckets, one arena for them, and captured buckets within a byte budget."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.errors import CapgraphError, CaptureError, MiscompiledError, ResourceError
from ...ir.evaluate import FAILURES
from ...ir.notices import Notices
from ...ir.plan import CutReason, Plan
from ..memory import size_text
from .bucket import Bucket
from .counters import BucketReport, Counters
from .modes import CaptureMode
from .options import ReplayOptions
from .recorder import Arena, Device
from .routing import BucketKey, Router
from .states import StoredStates

Planner = Callable[[Mapping[str, int], CaptureMode], Plan]
"""Plans the program's graph at given sizes, for a capture mode."""

CHOSEN = frozenset({CutReason.KEPT_OUTSIDE, CutReason.TOO_SMALL, CutReason.MODE_NONE})
"""Why steps are not captured although they could be: by what the user or the planner chose."""

PLANNED_AHEAD = 64
"""The most buckets that are planned before the arena is reserved; others get memory of their own if they need more."""

MOST_BUCKETS = 1024
"""The most buckets that are captured at a time: sizes that are captured exactly know no other bound than the budget."""

MOST_REFUSED = 4096
"""The most buckets that are remembered as refused."""


class Dispatcher:
    """Holds the buckets of one program. Not thread-safe."""

    def __init__(
        self,
        device: Device,
        planner: Planner,
        router: Router,
        options: ReplayOptions,
        fills: Mapping[str, Any],
        states: StoredStates,
        notices: Notices,
    ) -> None:
        self.counters = Counters()
        self.refused: dict[BucketKey, str] = {}
        self._device = device
        self._planner = planner
        self._router = router
        self._fills = fills
        self._options = options
        self._states = states
        self.notices = notices
        self._allowed = frozenset(tuple(bucket.items()) for bucket in router.buckets)
        self._arena: Arena | None = None
        self._own_arenas: dict[BucketKey, Arena] = {}
        self._plans: dict[BucketKey, Plan] = {}
        self._captured: OrderedDict[BucketKey, Bucket] = OrderedDict()

    # ---- captured buckets

    def find(self, key: BucketKey) -> Bucket | None:
        """The captured bucket, which counts as used."""
        found = self._captured.get(key)
        if found is not None:
            self._captured.move_to_end(key)
        return found

    def capture(self, key: BucketKey, values: Sequence[Any], expected: Sequence[Any]) -> Bucket | None:
        """Captures a bucket on inputs for which eager gave `expected`; None when it is refused, and counted.

        Raises `CaptureError` instead of refusing in a strict program, `MiscompiledError` where a pass is found to be
        wrong. Whatever happens, earlier buckets stay usable and stored states are what they were.
        """
        with self._states.preserved():
            return self._captured_or_refused(key, values, expected)

    def _captured_or_refused(self, key: BucketKey, values: Sequence[Any], expected: Sequence[Any]) -> Bucket | None:
        try:
            self._prepare()
            self._check_not_refused(key)
            bucket = Bucket(self._bound(key), self._options.policies, self._fills, self.counters, self._states.inputs)
            try:
                self._evict_beyond(MOST_BUCKETS - 1)
                bucket.capture(values, expected, self._options.warm_ups)
                self._check_strict(bucket)
                self._make_room(key, bucket.nbytes)
            except BaseException:
                bucket.close()
                self._release(key)
                raise
        except MiscompiledError:
            raise
        except FAILURES as error:
            self.refuse(key, error)
            return None
        if bucket.refusals:
            self._tell(f"a segment of bucket {key_text(key)} is not recorded: {bucket.refusals[0]}")
        self._tell_of_cuts(self._forced_cuts(bucket))
        self._captured[key] = bucket
        return bucket

    def move_states(self, states: Mapping[str, Any]) -> None:
        """Has every captured bucket go over to other memory for states; one that cannot is captured again later."""
        for key, bucket in list(self._captured.items()):
            try:
                bucket.move_states(states)
            except FAILURES:
                self._drop(key)
        self.counters.state_moves += 1

    def refuse(self, key: BucketKey, error: BaseException) -> None:
        """Takes a bucket out of service: its calls run eagerly from now on. Raises in a strict program."""
        self._note_refusal(key, str(error.message if isinstance(error, CapgraphError) else error) or "out of memory")
        self._drop(key)
        if self._options.strict:
            raise self._refusal(key) from error

    def refusal_of(self, key: BucketKey) -> str | None:
        """Why a bucket was refused, None when it was not. Raises `CaptureError` instead in a strict program."""
        why = self.refused.get(key)
        if why is not None and self._options.strict:
            raise self._refusal(key)
        return why

    def _refusal(self, key: BucketKey) -> CaptureError:
        why = f"bucket {key_text(key)} is refused: {self.refused[key]}"
        return CaptureError(why, remedy="strict=False runs it eagerly")

    def _note_refusal(self, key: BucketKey, why: str) -> None:
        if key in self.refused:
            return
        if len(self.refused) >= MOST_REFUSED:
            del self.refused[next(iter(self.refused))]
        self.refused[key] = why
        self.counters.refused_buckets += 1
        if not self._options.strict:
            self._tell(f"bucket {key_text(key)} is not recorded and its calls run eagerly: {why}")

    def _tell(self, message: str) -> None:
        self.notices.say("refusal", message, "program.explain() lists what was refused; strict=True raises instead")

    def _tell_of_cuts(self, cuts: Sequence[str]) -> None:
        if cuts:
            more = f", and {len(cuts) - 1} more" if len(cuts) > 1 else ""
            message = f"not everything is recorded: {cuts[0]}{more}"
            self.notices.say("cuts", message, "program.explain() lists what runs between recordings")

    def _check_not_refused(self, key: BucketKey) -> None:
        if key in self.refused:
            raise CaptureError(self.refused[key])

    def _check_strict(self, bucket: Bucket) -> None:
        if self._options.strict and bucket.refusals:
            raise CaptureError(f"a segment was refused: {bucket.refusals[0]}")
        if self._options.strict and self._forced_cuts(bucket):
            raise CaptureError(f"not everything is recorded: {self._forced_cuts(bucket)[0]}")

    def _forced_cuts(self, bucket: Bucket) -> tuple[str, ...]:
        """What nobody chose to leave outside; who asks for segments expects it."""
        return () if self._options.mode is CaptureMode.PIECEWISE else bucket.cuts(CHOSEN)

    # ---- memory

    def _prepare(self) -> None:
        """Plans the allowed buckets and reserves the arena for the largest plan that the budget admits."""
        if self._arena is not None:
            return
        keys = [tuple(bucket.items()) for bucket in self._router.buckets] if self._router.serves_all_dims else []
        needed, alignment = 0, 1
        for key in keys[:PLANNED_AHEAD]:
            try:
                plan = self._plan(key)
            except MiscompiledError:
                raise
            except CapgraphError as error:
                self._note_refusal(key, error.message)
                continue
            alignment = max(alignment, plan.alignment)
            if self._exceeds_budget(plan.arena_bytes):
                self._note_refusal(key, self._over_budget(plan.arena_bytes))
            else:
                needed = max(needed, plan.arena_bytes)
        self._arena = self._device.reserve(needed, alignment)

    def _plan(self, key: BucketKey) -> Plan:
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = planned_for_mode(self._planner, dict(key), self._options.mode)
        return found

    def _bound(self, key: BucketKey) -> Any:
        plan = self._plan(key)
        assert self._arena is not None  # prepared before
        arena = self._arena
        if plan.arena_bytes > arena.nbytes or arena.address % plan.alignment:
            self._make_room(key, plan.arena_bytes)
            arena = self._own_arenas[key] = self._device.reserve(plan.arena_bytes, plan.alignment)
        return self._device.bind(plan, arena, self._states.arrays)

    def _make_room(self, key: BucketKey, nbytes: int) -> None:
        """Evicts until `nbytes` more fit into the budget. Raises `ResourceError` when they cannot."""
        while self._exceeds_budget(self.nbytes + nbytes):
            if not self._captured:
                raise ResourceError(self._over_budget(self.nbytes + nbytes), remedy="raise the budget")
            self._drop(next(iter(self._captured)))
            self.counters.evictions += 1

    def _evict_beyond(self, count: int) -> None:
        while len(self._captured) > count:
            self._drop(next(iter(self._captured)))
            self.counters.evictions += 1

    def _exceeds_budget(self, nbytes: int) -> bool:
        return self._options.budget is not None and nbytes > self._options.budget

    def _over_budget(self, nbytes: int) -> str:
        return f"{size_text(nbytes)} do not fit into the budget of {size_text(self._options.budget or 0)}"

    def _drop(self, key: BucketKey) -> None:
        bucket = self._captured.pop(key, None)
        if bucket is not None:
            bucket.close()
        if key not in self._allowed:
            self._plans.pop(key, None)
        self._release(key)

    def _release(self, key: BucketKey) -> None:
        own = self._own_arenas.pop(key, None)
        if own is not None:
            own.close()

    # ---- reports

    @property
    def arena_bytes(self) -> int:
        """The shared arena and those of single buckets."""
        arenas = [*self._own_arenas.values(), *([] if self._arena is None else [self._arena])]
        return sum(arena.nbytes for arena in arenas)

    @property
    def recording_bytes(self) -> int:
        """All recordings."""
        return sum(bucket.nbytes for bucket in self._captured.values())

    @property
    def nbytes(self) -> int:
        """What counts against the budget."""
        return self.arena_bytes + self.recording_bytes

    def reports(self) -> tuple[BucketReport, ...]:
        """The captured buckets, the least recently used first."""
        return tuple(bucket.report() for bucket in self._captured.values())

    def close(self) -> None:
        """Gives back every recording and arena."""
        for key in list(self._captured):
            self._drop(key)
        if self._arena is not None:
            self._arena.close()
        self._plans.clear()


def planned_for_mode(planner: Planner, sizes: Mapping[str, int], mode: CaptureMode) -> Plan:
    """The plan for a capture mode. Raises `CaptureError` when mode FULL meets a graph that cannot be captured whole."""
    plan = planner(sizes, mode)
    eager = [segment for segment in plan.segments if not segment.is_captured]
    if mode is not CaptureMode.FULL or not eager:
        return plan
    cut = eager[0].cuts[0]
    raise CaptureError(
        f"the graph cannot be captured whole: {cut.reason.value}",
        where=plan.steps[cut.step].node.where(),
        remedy='mode="piecewise" or "full_and_piecewise"',
    )


def key_text(key: BucketKey) -> str:
    """A bucket for readers: `batch = 8`."""
    return ", ".join(f"{name} = {size}" for name, size in key) or "of fixed sizes"
