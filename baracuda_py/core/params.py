"""Kernel parameters: one struct by value, declared on the page, written into the unit as C++.

`Params("RmsNormParams", x="ptr", cols="i64", eps="f64")` fixes both sides: the C++ struct, with a
static_assert on its size, and the bytes Python packs. Fields are ordered by kind (tensor maps, pointers, 64-bit,
32-bit), so there is no implicit padding. Kinds: `map` (a `TensorMap`, encoded for the pointer of each call; zeros =
absent), `ptr` (an operand of the same name; null = absent), `workspace` (a pointer into the plan's workspace),
`status` (null, or the word a checked run sets), `scalar` / `iscalar` (a scalar operand: pointer and value, read by the
generated `name()`), `i64 u64 f64 i32 u32 f32`; any of them but `map` with extents, as `i64[3][8]`.

A field that is given a number is a constant, which the launch geometry and the kernel share: `scan_threads=256` stands
in the unit before the kernel's source as `constexpr int scan_threads = 256;` and takes no place in the struct. One that
is given names is an enumeration: `PadMode=("constant", "reflect")` is `enum class PadMode { constant, reflect };`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .memo import cached_property
from .tensor_map import NBYTES as _MAP

_LIMIT = 4096
_KIND = re.compile(r"([a-z0-9]+)((?:\[\d+\])*)$")
_C = {
    "map": "TensorMap",
    "status": "unsigned int*",
    "u64": "unsigned long long",
    "i64": "long long",
    "f64": "double",
    "u32": "unsigned int",
    "i32": "int",
    "f32": "float",
}
_SIZES = {"map": _MAP, "i32": 4, "u32": 4, "f32": 4}  # of all others 8
_MAP_ALIGNMENT = 64
_PACK = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "f32": "f"}
_GROUPS = (("map",), ("ptr", "workspace", "status"), ("i64", "u64"), ("f64",), ("i32", "u32"), ("f32",))


Field: TypeAlias = "str | int | tuple[str, ...]"
"""What a field of `Params` is declared as."""


@dataclass(frozen=True)
class Slot:
    """One C++ field: its name, kind, array extents and byte offset."""

    name: str
    kind: str
    extents: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        total = 1
        for extent in self.extents:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.count * _SIZES.get(self.kind, 8)


class Params:
    """A parameter struct; see the module's page for the kinds."""

    def __init__(self, name: str, /, **fields: Field) -> None:
        self.name, self.fields = name, fields
        self.constants = {f: value for f, value in fields.items() if not isinstance(value, str)}
        self.scalars = {f: k == "iscalar" for f, k in fields.items() if k in ("scalar", "iscalar")}
        flat: list[tuple[str, str, tuple[int, ...]]] = []
        for field, declared in fields.items():
            if not isinstance(declared, str):
                continue
            kind, dims = _KIND.match(declared).groups()  # type: ignore[union-attr]
            if field in self.scalars:
                flat.append((f"{field}_ptr", "ptr", ()))
                flat.append((f"{field}_value", "i64" if self.scalars[field] else "f64", ()))
            else:
                flat.append((field, kind, tuple(int(d) for d in re.findall(r"\d+", dims))))
        self.slots: dict[str, Slot] = {}
        offset = 0
        for group in _GROUPS:
            for field, kind, extents in (f for f in flat if f[1] in group):
                slot = Slot(field, kind, extents, offset)
                self.slots[field] = slot
                offset += slot.nbytes
        if len(self.slots) != len(flat):
            raise TypeError(f"{name}: unknown kind or repeated field in {fields}")
        self.maps = tuple(s for s in self.slots.values() if s.kind == "map")
        if any(slot.extents for slot in self.maps):
            raise TypeError(f"{name}: a map is a field of its own, not an array")
        tail = _MAP_ALIGNMENT if self.maps else 8
        self.size = max(8, -(-offset // tail) * tail)
        if self.size > _LIMIT:
            raise TypeError(f"{name} is {self.size} bytes; kernel parameters end at {_LIMIT}")
        self.pointers = tuple(s for s in self.slots.values() if s.kind in ("ptr", "workspace", "status"))
        self.pointers_at = _MAP * len(self.maps)
        self.pointer_struct = struct.Struct(f"<{sum(s.count for s in self.pointers)}Q")

    @cached_property
    def cpp(self) -> str:
        """The C++ struct and its check: fields of one size stand together, so the size without gaps fixes offsets."""
        lines = [f"struct {self.name} {{"]
        for slot in self.slots.values():
            dims = "".join(f"[{e}]" for e in slot.extents)
            ctype = _C.get(slot.kind, "void*")
            lines.append(f"  {ctype} {slot.name}{dims};")
        for name, is_int in self.scalars.items():
            ctype, load = ("i64", "load_scalar_i") if is_int else ("double", "load_scalar_f")
            lines.append(f"  __device__ {ctype} {name}() const {{ return {load}({name}_ptr, {name}_value); }}")
        used = sum(slot.nbytes for slot in self.slots.values())
        if used < self.size:
            lines.append(f"  char padding_[{self.size - used}];")
        lines.append("};")
        lines.append(f'static_assert(sizeof({self.name}) == {self.size}, "{self.name} and its page disagree");')
        return "\n".join(lines)

    def template(self, values: Mapping[str, Any]) -> bytearray:
        """The struct's bytes with every constant field set and every pointer null."""
        image = bytearray(self.size)
        for name, value in values.items():
            slot = self.slots.get(name)
            if slot is None or slot.kind not in _PACK:
                continue
            flat = list(_flatten(value))
            if len(flat) > slot.count:
                raise TypeError(f"{self.name}.{name} holds {slot.count} values, got {len(flat)}")
            if slot.kind == "f32":
                struct.pack_into(f"<{len(flat)}f", image, slot.offset, *flat)
            else:
                cast = float if slot.kind == "f64" else int
                struct.pack_into(f"<{len(flat)}{_PACK[slot.kind]}", image, slot.offset, *map(cast, flat))
        missing = [
            s.name for s in self.slots.values() if s.kind in _PACK and s.name not in values and not self._is_scalar(s)
        ]
        unknown = [n for n in values if n not in self.slots]
        if missing or unknown:
            raise TypeError(f"{self.name}: geometry left {missing} unset and gave unknown {unknown}")
        return image

    def _is_scalar(self, slot: Slot) -> bool:
        return slot.name.endswith("_value") and slot.name[:-6] in self.scalars


def constants(structs: Iterable[Params]) -> list[str]:
    """The C++ lines of the constants of a unit's structs, which may share some: one name has one value."""
    known: dict[str, int | tuple[str, ...]] = {}
    for params in structs:
        for name, value in params.constants.items():
            if known.setdefault(name, value) != value:
                raise TypeError(f"{params.name}: {name} is {value}, another struct of the unit has {known[name]}")
    return [_constant(name, value) for name, value in known.items()]


def _constant(name: str, value: int | tuple[str, ...]) -> str:
    if not isinstance(value, int):
        return f"enum class {name} {{ {', '.join(value)} }};"
    return f"constexpr {'int' if abs(value) < 2**31 else _C['i64']} {name} = {value};"


def exactly(whole: bool, *names: str) -> dict[str, Any]:
    """What a launch gives for scalars that are declared twice, `t="scalar"` and `t_whole="iscalar"`.

    Of the two parameters the kernel reads p.t_whole() where the element is an integer, so that no bit of an int64 is
    lost on the way, else p.t(); the other is 0.
    """
    if whole:
        return {f"{n}_whole_ptr": n for n in names} | {f"{n}_value": 0.0 for n in names}
    return {f"{n}_whole_value": 0 for n in names}


def _flatten(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flatten(item)
    else:
        yield value
