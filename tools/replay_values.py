"""What a call takes and gives as text on which two processes agree: no address, no time, bits as digests."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_ADDRESS = re.compile(r"0x[0-9a-f]{5,}|(?<= at )\d{9,}")
_FIELD = re.compile(r"^ {2}(.+?) ?(\w+)((?:\[\d+\])*);$", re.MULTILINE)
_FORMATS = {
    "TensorMap": "16Q", "unsigned long long": "Q", "long long": "q", "double": "d", "unsigned int": "I", "int": "i",
    "float": "f",
}  # fmt: skip
_LEAST_ADDRESS = 1 << 32


def is_array(value: Any) -> bool:
    """Whether it is an array of any package."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (np.generic, type))


def moved(value: Any, move: Callable[[Any], Any]) -> Any:
    """The arrays within lists, tuples and dicts, moved; what is no array as it is."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(moved(one, move) for one in value)
    if isinstance(value, dict):
        return {key: moved(one, move) for key, one in value.items()}
    return move(value) if is_array(value) else value


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Where arrays are within lists, tuples and dicts, and the arrays."""
    if isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from leaves(one, f"{path}.{key}" if path else str(key))
    elif is_array(value):
        yield path, value


def package(value: Any) -> str:
    """Of which package an array is."""
    name = type(value).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def pointer(value: Any) -> int:
    """The address of an array's first element, 0 where it has none to tell."""
    kind = package(value)
    try:
        if kind == "torch":
            return 0 if type(value).__name__ == "FakeTensor" else int(value.data_ptr())
        return int(value.data.ptr if kind == "cupy" else value.__array_interface__["data"][0] if kind == "numpy" else 0)
    except Exception:
        return 0


def strides(value: Any) -> str:
    """An array's strides as its package counts them, where it has some and is not dense."""
    found = value.stride() if package(value) == "torch" else getattr(value, "strides", None)
    dense = bool(getattr(getattr(value, "flags", None), "c_contiguous", False))
    dense = value.is_contiguous() if package(value) == "torch" else dense
    return "" if found is None or dense else f" strides{tuple(found)}".replace(" ", "")


def bits(value: Any) -> str:
    """A digest of an array's elements; of memory that stands for a device's there is none."""
    if package(value) == "cupy":
        return ""
    if package(value) == "torch":
        held = value.detach().resolve_conj().resolve_neg().contiguous()
        torch = __import__("torch")
        data = held.reshape(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b""
    else:
        data = np.ascontiguousarray(np.asarray(value)).tobytes()
    return hashlib.sha1(data).hexdigest()[:10]


class Known:
    """Arrays that a call was given, and memory made in it, by name: what an address is of."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int, int, Any]] = []

    def add(self, name: str, value: Any) -> None:
        """An array."""
        start, shape = pointer(value), tuple(value.shape)
        if not start or 0 in shape:
            return
        torch = package(value) == "torch"
        size = value.element_size() if torch else value.dtype.itemsize
        steps = [s * size for s in value.stride()] if torch else value.strides
        ends = [(n - 1) * s for n, s in zip(shape, steps, strict=True) if n]
        low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends) + size
        self.ranges.append((name, start + low, start + high, value))

    def memory(self, name: str, start: int, nbytes: int) -> None:
        """Memory."""
        self.ranges.append((name, start, start + max(nbytes, 1), None))

    def place(self, address: int) -> str:
        """`operand+offset`, or nothing."""
        for name, low, high, _ in self.ranges:
            if low <= address < high:
                return f"{name}+{address - low}"
        return ""


def shown(value: Any, known: Known, valued: bool = True) -> str:
    """An array in words: package, element, shape, strides, bits, and which operand it is or lies in."""
    element = str(value.dtype).removeprefix("torch.")
    text = f"{package(value)} {element}{list(value.shape)}{strides(value)}"
    if type(value).__name__ not in ("ndarray", "Tensor", "ArrayImpl"):
        text = f"{type(value).__name__} {text}"
    if package(value) == "torch" and value.requires_grad:
        text += " requires_grad"
    same = next((name for name, _, _, one in known.ranges if one is value), None)
    if same is not None:
        text += f" is {same}"
    elif 0 not in value.shape and (place := known.place(pointer(value))):
        text += f" in {place}"
    return f"{text} {bits(value)}".rstrip() if valued else text


def given(value: Any, known: Known, valued: bool = True) -> Any:
    """What a call gives, as JSON."""
    if isinstance(value, (list, tuple)):
        name = type(value).__name__
        return [*([name] if name not in ("list",) else []), *(given(one, known, valued) for one in value)]
    if isinstance(value, dict):
        return {str(key): given(one, known, valued) for key, one in value.items()}
    if is_array(value):
        return shown(value, known, valued)
    return words(f"{type(value).__name__} {value!r}")


def words(text: str) -> str:
    """A message or a repr without addresses."""
    return _ADDRESS.sub("0x…", text)[:3000]


def failed(error: BaseException) -> str:
    """An error: its type and what it says."""
    return words(f"{type(error).__name__}: {error}")


def usual(value: Any) -> str:
    """A dataclass by the fields that differ from their defaults."""
    if value is None or not dataclasses.is_dataclass(value):
        return repr(value)
    own = ((f, getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr)
    found = [f"{f.name}={one!s}" for f, one in own if not (type(one) is type(f.default) and one == f.default)]
    return words(f"{type(value).__name__}({', '.join(found)})")


def params(text: str, struct_name: str, image: bytes, known: Known) -> dict[str, Any]:
    """A kernel's parameters by name, of those that are not 0; addresses as the memory that they are of."""
    start = text.find(f"struct {struct_name} {{")
    body = text[start : text.find("\n};", start)]
    found: dict[str, Any] = {}
    offset = 0
    for kind, name, extents in _FIELD.findall(body):
        pointing = kind.endswith("*")
        form = "Q" if pointing else _FORMATS.get(kind)
        if form is None:
            continue
        count = int(np.prod([int(n) for n in re.findall(r"\d+", extents)] or [1]))
        layout = struct.Struct(f"<{form}" if kind == "TensorMap" else f"<{count}{form}")
        mapped = kind == "TensorMap"  # whose first word is an address
        each = enumerate(layout.unpack_from(image, offset))
        values = [_value(one, pointing or (mapped and i == 0), known) for i, one in each]
        offset += layout.size
        while values and values[-1] == 0:
            values.pop()
        if values:
            found[name] = " ".join(map(str, values))
    return found


def _value(value: Any, pointing: bool, known: Known) -> Any:
    if isinstance(value, int) and value >= _LEAST_ADDRESS and (place := known.place(value)):
        return place
    return "elsewhere" if pointing and value else value
