"""A kernel as a list of steps, which takes no compiler where its kinds of step are known.

A kind of step is a statement of C++ without its registers, numbers and places: those are operands, a word each. The
kernels of a whole library have a thousand kinds or so between them, each of which is compiled once, as a function; a
kernel is then the addresses of its functions with their operands, see steps.cpp.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

_OPERAND = re.compile(
    r"reinterpret_cast<u64>\((?P<name>\w+)\)|\b(?P<array>_\w+)\[(?P<index>\d+)\]|goto (?P<label>\w+);"
    r"|(?<![\w.\[<])(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+))(?P<suffix>[uUlL]*)(?![\w.])"
)
_NUMBERED = re.compile(r"\bo\[(\d+)\]|REGISTER\(\w+, (\d+)\)")
_GIVEN = "(Thread& t, char* frame, const u64* o)"
_LABEL = re.compile(r"(\w+):;")
_IDLE = {"", ";", "{", "}"}
_WORD = 1 << 64
_ALIGNED = 16  # bytes: what the registers of a kind, and arrays, begin at multiples of
HEAD = """#include "simt.hpp"
using namespace simt;
#define REGISTER(T, n) (*reinterpret_cast<T*>(frame + o[n]))
"""


@dataclass
class Listing:
    """A kernel: what its steps do, their code, and the sizes that a launch asks for."""

    static: int
    dynamic: int
    frame: int  # bytes of a thread's registers and arrays
    data: str  # arrays of all threads, in hexadecimal
    kinds: list[str]
    starts: list[int]  # of steps in the code, where their function's address goes
    of: list[int]  # the kind of each
    code: list[int]  # the operands, and zeros where addresses go
    places: list[int]  # of operands that are offsets in the data


def named(kind: str) -> str:
    """The function of a kind."""
    return f"step_{hashlib.sha256(kind.encode()).hexdigest()[:24]}"


def functions(kinds: Iterable[str]) -> str:
    """C++ of kinds of step, and a table of their names and addresses."""
    kinds = sorted(set(kinds))
    made = [HEAD]
    for kind in kinds:
        count = 1 + max((int(a or b) for a, b in _NUMBERED.findall(kind)), default=-1)
        made.append(f"static const u64* {named(kind)}{_GIVEN} {{ {kind} return o + {count}; }}")
    names = ", ".join(f'{{"{named(kind)}", {named(kind)}}}' for kind in kinds)
    entry = f"struct Entry {{ const char* name; const u64* (*step){_GIVEN}; }};"
    return "\n".join([*made, entry, f'extern "C" const Entry steps[] = {{{names}, {{nullptr, nullptr}}}};'])


Arrays = Mapping[str, tuple[int, bytes]]  # by name, with alignment and what they hold at first


def listing(
    statements: Iterable[str], registers: Mapping[str, tuple[str, int]], local: Arrays, data: Arrays,
    sizes: tuple[int, int],
) -> Listing:  # fmt: skip
    """Of statements, in order; registers by their array's name, with type and count; arrays of a thread, and of all;
    static and dynamic bytes of shared memory."""
    writer = _Writer(registers, local, data)
    for statement in (*statements, "leave(t);"):
        if label := _LABEL.fullmatch(statement):
            writer.labels[label[1]] = len(writer.code)
        elif statement not in _IDLE:
            writer.step(statement)
    for place, first, label_name in writer.jumps:
        writer.code[place] = (writer.labels[label_name] - first) % _WORD
    kinds = list(writer.kinds)
    return Listing(*sizes, writer.frame, writer.data.hex(), kinds, writer.starts, writer.of, writer.code, writer.places)


class _Writer:
    """Writes steps, one after another, and the places of registers and arrays."""

    def __init__(self, registers: Mapping[str, tuple[str, int]], local: Arrays, data: Arrays) -> None:
        self.code: list[int] = []
        self.starts: list[int] = []
        self.of: list[int] = []
        self.places: list[int] = []
        self.kinds: dict[str, int] = {}
        self.labels: dict[str, int] = {}  # where they are in the code
        self.jumps: list[tuple[int, int, str]] = []  # operand, first operand of its step, label
        widths = {name: 1 if kind == "pred" else int(kind[1:]) // 8 for name, (kind, _) in registers.items()}
        kept = {name: (_ALIGNED, bytes(count * widths[name])) for name, (_, count) in registers.items()}
        frame, offsets = _packed({**kept, **local})
        self.frame = len(frame)
        self.data, self._shared = _packed(data)
        self._registers = {name: (kind, offsets[name], widths[name]) for name, (kind, _) in registers.items()}
        self._local = {name: offsets[name] for name in local}

    def step(self, statement: str) -> None:
        """A place for the address of its function, and its operands."""
        self.starts.append(len(self.code))
        self.code.append(0)
        self._first = len(self.code)
        kind = _OPERAND.sub(self._operand, statement)
        self.of.append(self.kinds.setdefault(kind, len(self.kinds)))

    def _operand(self, found: re.Match[str]) -> str:
        """Its word goes to the code, and in its place what reads it there."""
        place = len(self.code)
        name, array, index, label, digits, suffix = found.groups()
        word = f"o[{place - self._first}]"
        if label:
            self.jumps.append((place, self._first, label))
            self.code.append(0)
            return f"return o + static_cast<s64>({word});"
        if name:
            shared = name not in self._local
            self.code.append(self._shared[name] if shared else self._local[name])
            self.places += [place] if shared else []
            return word if shared else f"(reinterpret_cast<u64>(frame) + {word})"
        if array:
            kind, offset, width = self._registers[array]
            self.code.append(offset + width * int(index))
            return f"REGISTER({kind}, {place - self._first})"
        value, kind = _literal(digits, suffix.lower())
        self.code.append(value % _WORD)
        return f"{kind}({word})"


def _packed(arrays: Arrays) -> tuple[bytearray, dict[str, int]]:
    """Arrays one after another, and where each begins."""
    held, offsets = bytearray(), dict[str, int]()
    for name, (align, value) in arrays.items():
        held += bytes(-len(held) % align)
        offsets[name] = len(held)
        held += value
    return held, offsets


@cache
def _literal(digits: str, suffix: str) -> tuple[int, str]:
    """Its value, and the type that it has in C++."""
    hexadecimal = "x" in digits.lower()
    value = int(digits, 16 if hexadecimal else 10)
    if "u" in suffix:
        return value, "u32" if "l" not in suffix and value < 1 << 32 else "u64"
    if -(1 << 31) <= value < 1 << 31 and not suffix:
        return value, "s32"
    if hexadecimal and not suffix and value < 1 << 32:
        return value, "u32"
    return value, "s64" if value < 1 << 63 else "u64"


def linked(made: Listing, addresses: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The code with the addresses of its functions, and the data, which it points to."""
    data = np.frombuffer(bytes.fromhex(made.data), np.uint8)
    held = np.zeros(data.size + 4096, np.uint8)
    held = held[-held.ctypes.data % 4096 :][: data.size]
    held[:] = data
    code = np.array(made.code, np.uint64)
    code[made.starts] = np.array([addresses[kind] for kind in made.kinds], np.uint64)[made.of]
    code[made.places] += np.uint64(held.ctypes.data)
    return code, held


def dumps(made: Listing) -> str:
    """As JSON."""
    return json.dumps(vars(made))


def loads(text: str) -> Listing:
    """What `dumps` wrote."""
    return Listing(**json.loads(text))
