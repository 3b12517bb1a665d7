"""Regions: a fused body and the branches of an `if` are judged like the nodes around them."""

from .facts import Case, Fact, Fill, Rules, Tail, Unsafe, met


def fused(case: Case) -> list[Fact]:
    """What its body says; where that fails, its nodes take its place and are masked one by one."""
    try:
        return list(case.judge_body(case.node.attrs["body"], [case.fact(i) for i in range(len(case.facts))]))
    except Unsafe as failure:
        raise Unsafe(failure.reason, replace=lambda insertion, node: insertion.inline_body(node)) from failure


def if_(case: Case) -> list[Fact]:
    """Both branches must be safe, and agree on where the real elements are."""
    case.require_unpadded(0)
    captured = [case.fact(i) for i in range(1, len(case.facts))]
    bodies = [case.judge_body(case.node.attrs[name], captured) for name in ("then_body", "else_body")]
    return [_joined(*pair) for pair in zip(*bodies, strict=True)]


def _joined(left: Fact, right: Fact) -> Fact:
    tails: list[Tail | None] = []
    for a, b in zip(left.tails, right.tails, strict=True):
        if a is None and b is None:
            tails.append(None)
        elif a is None or b is None:
            raise Unsafe("the branches disagree on which axes carry the dim")
        else:
            tails.append(met([a, b], "branches").filled(_common(a.fill, b.fill)))
    return Fact(tuple(tails))


def _common(a: Fill, b: Fill) -> Fill:
    return a if a == b else None


RULES: Rules = {"fused": fused, "if": if_}
