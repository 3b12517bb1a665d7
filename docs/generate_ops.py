"""Writes docs/reference/ops.md: the table of all native ops, as their schemas state them.

python -m docs.generate_ops
"""

import re
from pathlib import Path

from capgraph.ir import op as schema
from capgraph.ir import ops
from capgraph.ir.attrs import Attribute, AttrKind
from capgraph.ir.op import Op, Operand, Trait
from capgraph.ir.ops import FAMILIES, OPS
from capgraph.ir.types import DType

from docs.op_matrix import COLUMNS, rows

PAGE = Path(__file__).parent / "reference" / "ops.md"

# From the largest to the smallest: a set is written as the first that it holds, then what is left of it.
_SETS = {
    "any": schema.ANY,
    "number": schema.NUMBERS,
    "integer": schema.INTEGERS,
    "unsigned": schema.UINTS,
    "signed": schema.SIGNED,
    "float": schema.FLOATS,
    "float8": schema.FLOAT8,
    "sub-byte": schema.SUB_BYTE,
    "complex": schema.COMPLEX,
}

_TRAITS = {
    Trait.COMMUTATIVE: "the two operands may be swapped",
    Trait.ELEMENTWISE: "each element of the result depends on one element of each operand",
    Trait.REDUCTION: "reduces axes to one value",
    Trait.ROWWISE: "each row of the result, from `axis` on, depends on that row of the first operand",
    Trait.GROUPWISE: "each group of channels of the result depends on that group of a sample of the first operand",
    Trait.ANCHOR: "a matmul or a convolution: heavy work, never done twice",
    Trait.LOOKUP: "each element is one of the first operand's, where indices say",
    Trait.DRAWS: "random: each element depends on its place, the elements there, and the state",
    Trait.VIEW: "holds the elements of the first operand, in another shape or order",
    Trait.JOINS: "the operands one behind another along `axis`",
    Trait.SEQUENTIAL: "a recurrence over an axis",
    Trait.IMPURE: "another result at the next call: never folded, never merged",
    Trait.DATA_DEPENDENT: "sizes of results depend on contents: runs eagerly",
    Trait.READS_HOST: "the contents of an operand steer the launch: runs eagerly",
    Trait.CONTROL_FLOW: "owns regions",
    Trait.RESHAPES: "a view with the elements in the same order",
    Trait.KEEPS_AXES: "axes of the result are those of the first operand, in any order in memory",
    Trait.BROADCASTS: "of two or more operands, any of which may be the one that is repeated",
    Trait.COMPARES: "a bool that says how two elements stand to each other",
    Trait.ACTIVATION: "a continuous function of one element that follows a layer",
    Trait.INVOLUTION: "applied twice, it gives its operand",
    Trait.IDEMPOTENT: "changes nothing when applied to its own result, or to two equal operands",
    Trait.UNROUNDED: "results in floats are exact",
    Trait.UP_TO_F32: "runtimes have no kernels of it in f64",
    Trait.CONTRACTION: "a matmul, or a batch of them",
    Trait.CONVOLUTION: "a product of a kernel with the windows of images",
    Trait.POOLING: "reduces the windows of images",
    Trait.RECURRENT: "a cell of a recurrent network, run over a sequence",
    Trait.SPECTRAL: "a Fourier transform of rows",
    Trait.GATHERS: "elements of the first operand where indices say, in any form",
    Trait.WRITES: "the first operand with some elements written over",
    Trait.SIZES: "reads sizes only, no elements",
    Trait.REFUSES_EMPTY: "may be an error where the first operand has no elements",
}

_INTRODUCTION = """\
# Native ops

{count} ops in {families} families. This page is made by `python -m docs.generate_ops` from the ops' own schemas; the
whole meaning of an op is the docstring of its NumPy function in `ir/ops/FAMILY.py`, or `ir/ops/nn/FAMILY.py`.

How to read a row: operands with the same letter have the same dtype; `?` marks an operand that may be absent, `*` any
number of operands. An attribute without a default must be given. An op called `dynamic_...` takes at run time, as an
operand, what the op without the prefix takes as an attribute. Elementwise ops broadcast their operands as NumPy does,
and nothing is converted: a cast is a node.

| dtypes | which |
|---|---|
{sets}

| trait | what drivers may rely on |
|---|---|
{traits}
"""


_MATRIX = """\
## Where each op is known

By reading the rules.

* ONNX in, PyTorch in: operators that become the op, some with other nodes beside it. Passes make ops, too.
* ONNX out: its file in `frontends/onnx/ops/`, or composed of the ops of its expression.
* CUDA: its file in `executors/cuda/kernels/` or `executors/cuda/kernel_ir/`. An expression stands in `expressions.py`
  there. A view needs no kernel.
* Padding: its file in `passes/planning/padding/rules/`. An elementwise op needs no rule. What is not there is unsafe.

"""


def unexplained_traits() -> list[Trait]:
    """Traits of native ops that this page says nothing of."""
    return [trait for trait in Trait if trait not in _TRAITS and any(trait in op.traits for op in OPS.values())]


def page() -> str:
    """The whole page."""
    sets = "\n".join(f"| {name} | {_listed(dtypes)} |" for name, dtypes in _SETS.items() if name != "any")
    traits = "\n".join(f"| {_name(trait)} | {meaning} |" for trait, meaning in _TRAITS.items())
    introduction = _INTRODUCTION.format(count=len(OPS), families=len(FAMILIES), sets=sets, traits=traits)
    return "\n".join([introduction, *(_family(name) for name in FAMILIES), _matrix()])


def _matrix() -> str:
    head = ("op", *COLUMNS)
    lines = [head, tuple("---" for _ in head), *rows()]
    return _MATRIX + "\n".join(f"| {' | '.join(cells)} |".replace("| --- |", "|---|") for cells in lines) + "\n"


def _family(name: str) -> str:
    about = getattr(ops, name).__doc__ or ""
    rows = "\n".join(_row(OPS[entry]) for entry in FAMILIES[name])
    head = "| op | attributes | traits | meaning |\n|---|---|---|---|"
    return f"## {name}\n\n{_cell(_first_paragraph(about))}\n\n{head}\n{rows}\n"


def _row(op: Op) -> str:
    cells = (_signature(op), ", ".join(map(_attribute, op.attrs.values())), _traits(op), _first_paragraph(op.doc))
    return f"| {' | '.join(map(_cell, cells))} |"


def _signature(op: Op) -> str:
    operands = ", ".join(map(_operand, op.operands))
    variables = {operand.var: _dtypes(operand.dtypes) for operand in op.operands if operand.var}
    where = "; ".join(f"{name}: {dtypes}" for name, dtypes in variables.items())
    return f"`{op.name}({operands})`" + (f" {where}" if where else "")


def _operand(operand: Operand) -> str:
    star, mark = "*" * operand.is_variadic, "?" * operand.is_optional
    kind = operand.var or _dtypes(operand.dtypes)
    return f"{star}{operand.name}: {kind}{mark}"


def _dtypes(dtypes: frozenset[DType]) -> str:
    names, rest = [], dtypes
    for name, members in _SETS.items():
        if members <= rest:
            names.append(name)
            rest -= members
    return ", ".join([*names, *(dtype.value for dtype in DType if dtype in rest)])


def _listed(dtypes: frozenset[DType]) -> str:
    return ", ".join(dtype.value for dtype in DType if dtype in dtypes)


def _attribute(attribute: Attribute) -> str:
    kind = " or ".join(attribute.choices) if attribute.choices else attribute.kind.value
    default = "" if attribute.is_required else f" = {_default(attribute)}"
    return f"`{attribute.name}`: {kind}{default}"


def _default(attribute: Attribute) -> str:
    value = attribute.default
    if value is None:
        return "none"
    if attribute.kind is AttrKind.BOOL:
        return str(value).lower()
    return "[]" if value == () else str(value)


def _traits(op: Op) -> str:
    return ", ".join(_name(trait) for trait in Trait if trait in op.traits)


def _name(trait: Trait) -> str:
    return (trait.name or "").lower().replace("_", " ")


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _cell(text: str) -> str:
    """`text` with what Markdown would read as its own made plain, except in code."""
    parts = re.split("(`[^`]*`)", text)
    plain = (part if part.startswith("`") else re.sub(r"([*|\[\]])", r"\\\1", part) for part in parts)
    return "".join(plain)


if __name__ == "__main__":
    PAGE.write_text(page())
