"""Nodes that go element by element: functions of one operand, of several that broadcast, casts."""

import numpy as np

from tests.onnx_models.draw import ELEMENTS, Draw, Unrunnable, number_of
from tests.onnx_models.registry import recipe

_RANGES = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Acosh": (1, 4), "Log": (0.05, 5), "Sqrt": (0, 5)}


@recipe(
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
    *("Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid"),
    *("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
)
def function_of_one(d: Draw, op: str) -> None:
    """A function without attributes, inside its domain in most cases."""
    param = d.schema(op).inputs[0].type_str
    if op in _RANGES and d.chance(0.7):
        low, high = _RANGES[op]
        x = d.new(d.element(op, param), d.shape(), low, high)
    else:
        x = d.some(op, param)
    d.node(op, [x])


@recipe("Celu", "Elu", "Gelu", "HardSigmoid", "IsInf", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu")
def function_with_attributes(d: Draw, op: str) -> None:
    """A function with a few numbers."""
    x = d.some(op, d.schema(op).inputs[0].type_str)
    attributes = d.attributes(
        op,
        alpha=d.real(0.1, 1.5),
        beta=d.real(-1, 1),
        gamma=d.real(0.5, 2),
        bias=d.real(-1, 1),
        lambd=d.real(0, 1),
        detect_negative=d.whole(0, 1),
        detect_positive=d.whole(0, 1),
        approximate=d.pick("none", "tanh"),
    )
    d.node(op, [x], attributes)


@recipe(
    *(
        "Add",
        "And",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
    ),
    *("Mul", "Or", "Sub", "Xor", "StringConcat"),
)
def function_of_two(d: Draw, op: str) -> None:
    """Two operands that broadcast."""
    x = d.some(op, d.schema(op).inputs[0].type_str)
    y = d.like(x.element, d.broadcast(x.shape))
    d.node(op, [x, y] if d.chance(0.6) else [y, x])


@recipe("Div", "Mod")
def division(d: Draw, op: str) -> None:
    """Integers are not divided by 0, nor the least one by -1."""
    x = d.some(op, "T")
    is_float = x.element in ("float", "double", "float16", "bfloat16")
    low = 1 if not is_float or d.chance(0.5) else None
    shape = d.broadcast(x.shape)
    if low is not None:
        y = d.new(x.element, shape, low, 5)
        if not is_float and d.chance(0.4) and not x.element.startswith("u"):
            y = d.new(x.element, shape, -5, -2)
    else:
        y = d.like(x.element, shape)
    fmod = 1 if is_float else d.whole(0, 1)
    attributes = {"fmod": fmod} if op == "Mod" and (fmod or d.chance(0.3)) else {}
    d.node(op, [x, y], attributes)


@recipe("Pow")
def power(d: Draw, op: str) -> None:
    """Powers that are numbers."""
    x = d.some(op, "T")
    exponents = d.elements(op, "T1" if d.opset >= 12 else "T")
    element = d.rng.choice([each for each in exponents if each in ("float", "int64", "int32", "double", x.element)])
    if d.opset < 12:
        element = x.element
    shape = d.broadcast(x.shape)
    low = 0 if "int" in x.element else -2
    if element in ("float", "double", "float16", "bfloat16") and d.chance(0.7):
        y = d.given(d.array("int64", shape, low, 3).astype(ELEMENTS[element]), element)
    else:
        y = d.new(element, shape, low, 3)
    d.node(op, [x, y])


@recipe("BitShift")
def shift(d: Draw, op: str) -> None:
    """Shifts by less than the width."""
    x = d.some(op, "T")
    d.node(op, [x, d.new(x.element, d.broadcast(x.shape), 0, 7)], {"direction": d.pick("LEFT", "RIGHT")})


@recipe("Max", "Min", "Mean", "Sum")
def of_any_number(d: Draw, op: str) -> None:
    """One to four operands that broadcast."""
    x = d.some(op, "T")
    others = [d.like(x.element, d.broadcast(x.shape)) for _ in range(d.whole(0, 3))]
    operands = [x, *others]
    d.rng.shuffle(operands)
    d.node(op, operands)


@recipe("Where")
def choice(d: Draw, op: str) -> None:
    """Three operands that broadcast."""
    x = d.some(op, "T")
    y = d.like(x.element, d.broadcast(x.shape))
    d.node(op, [d.like("bool", d.broadcast(x.shape)), *((x, y) if d.chance(0.5) else (y, x))])


@recipe("PRelu")
def slopes(d: Draw, op: str) -> None:
    """Slopes broadcast to the operand, not beyond."""
    x = d.some(op, "T")
    shape = [1 if d.chance(0.4) else size for size in x.shape]
    d.node(op, [x, d.like(x.element, shape[d.whole(0, len(shape)) :] if d.chance(0.4) else shape)])


@recipe("Clip")
def bounds(d: Draw, op: str) -> None:
    """Bounds as attributes or operands, one of them or none."""
    x = d.some(op, "T")
    low, high = d.whole(-2, 1), d.whole(1, 3)
    if d.opset < 11:
        d.node(op, [x], d.attributes(op, min=float(low), max=float(high)))
        return
    low = max(low, 0) if x.element.startswith("u") else low
    ends = [d.given(end, x.element) if d.chance(0.7) else None for end in (low, high)]
    d.node(op, [x, *ends])


@recipe("Cast", "CastLike")
def cast(d: Draw, op: str) -> None:
    """From any type to any other that holds the numbers."""
    x = d.some(op, "T1")
    given = d.element(op, "T2")
    if x.element == "string" and given != "string":
        if not {given} & {"float", "double", "int64", "int32", "float16"}:
            raise Unrunnable("strings of such numbers")
        words = [
            d.pick("1", "-2", "3", "12", *(("0.5", "1e2", "-inf") if given[:3] != "int" else ()))
            for _ in range(x.content.size)
        ]
        x = d.given(np.array(words, object).reshape(x.shape), "string")
    elif "int" in given:
        low, high = (0, 7) if given.startswith("u") else (-8, 7)
        if x.element not in {"bool", "string"}:
            x = d.new(x.element, x.shape, low if not x.element.startswith("u") else 0, high)
    attributes = d.attributes(
        op,
        saturate=d.whole(0, 1) if "8e" in given else None,
        round_mode=d.pick("up", "down", "nearest") if d.opset >= 25 else None,
    )
    if op == "Cast":
        d.node(op, [x], {**attributes, "to": number_of(given)})
    else:
        d.node(op, [x, d.like(given, d.shape(0, 2))], attributes)


@recipe("Dropout")
def dropout(d: Draw, op: str) -> None:
    """In inference, where it is the identity; the mask is open before opset 12."""
    x = d.some(op, "T")
    outputs = (True, d.opset >= 12 and d.chance(0.4))
    if d.opset < 12:
        d.node(op, [x], d.attributes(op, ratio=d.real(0, 1)), outputs)
        return
    ratio = d.given(d.pick(0.0, 0.5, 0.3), d.element(op, "T1")) if d.chance(0.6) else None
    training = d.given(np.array(False), "bool") if d.chance(0.4) else None
    d.node(op, [x, ratio, training], d.attributes(op, seed=d.whole(0, 9)), outputs)
