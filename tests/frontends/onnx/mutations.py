"""Damaged models: valid ones with bytes or fields changed."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx import ModelProto

_INTERESTING = (0, 1, -1, 2, 7, 13, 64, 255, 2**31 - 1, -(2**31), 2**62, -(2**62))
_NAMES = ("", "x", "y", "c", "Identity", "Loop", "If", "Reshape", "Conv", "Einsum", "SequenceAt", "local", "ai.onnx.ml")


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """`data` with one to four pieces flipped, removed, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        if not changed:
            break
        draw.choice((_flip, _remove, _repeat, _cut))(changed, draw)
    return bytes(changed)


def _flip(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(len(data))] = draw.randrange(256)


def _remove(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data))
    del data[start : start + draw.randint(1, 16)]


def _repeat(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data))
    data[start:start] = data[start : start + draw.randint(1, 32)]


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def mutated_fields(model: ModelProto, draw: random.Random) -> ModelProto:
    """A copy of `model` with one to three fields changed, anywhere in it."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for _ in range(draw.randint(1, 3)):
        _change(draw.choice(_messages(changed)), draw)
    return changed


def _messages(message: Any) -> list[Any]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in value if _is_repeated(field) else [value]:
                found += _messages(item)
    return found


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change(message: Any, draw: random.Random) -> None:
    field = draw.choice(message.DESCRIPTOR.fields)
    if _is_repeated(field):
        _change_list(getattr(message, field.name), field, draw)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        message.ClearField(field.name)
    else:
        try:
            setattr(message, field.name, _value(field, draw))
        except (ValueError, TypeError):  # an enumeration's number, say, that protobuf itself refuses
            message.ClearField(field.name)


def _change_list(items: Any, field: Any, draw: random.Random) -> None:
    choice = draw.randrange(3)
    if choice == 0 and items:
        del items[draw.randrange(len(items))]
    elif choice == 1 and len(items) > 1:
        _swap(items, draw)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if items:
            items.add().CopyFrom(draw.choice(items))
    else:
        items.append(_value(field, draw))


def _swap(items: Any, draw: random.Random) -> None:
    shuffled: Sequence[Any] = [_copy(item) for item in items]
    draw.shuffle(shuffled)  # type: ignore[arg-type]
    del items[:]
    items.extend(shuffled)


def _copy(item: Any) -> Any:
    if not hasattr(item, "CopyFrom"):
        return item
    copied = type(item)()
    copied.CopyFrom(item)
    return copied


def _value(field: Any, draw: random.Random) -> Any:
    kinds: dict[int, Callable[[], Any]] = {
        FieldDescriptor.TYPE_STRING: lambda: draw.choice(_NAMES),
        FieldDescriptor.TYPE_BYTES: lambda: draw.randbytes(draw.randrange(24)),
        FieldDescriptor.TYPE_FLOAT: lambda: draw.choice((0.0, -1.0, 1e30, float("nan"), float("inf"))),
        FieldDescriptor.TYPE_DOUBLE: lambda: draw.choice((0.0, -1.0, 1e300, float("nan"), float("inf"))),
        FieldDescriptor.TYPE_ENUM: lambda: draw.randrange(-1, 30),
    }
    whole = draw.choice(_INTERESTING)
    small = FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT64
    return kinds.get(field.type, lambda: abs(whole) % 2**31 if field.type in small else whole)()


def is_op_set_known(model: ModelProto) -> bool:
    """Whether the model's opset is one that the installed onnx has."""
    return all(entry.version <= onnx.defs.onnx_opset_version() for entry in model.opset_import)
