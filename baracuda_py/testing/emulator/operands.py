"""Operands of PTX as C++: registers, literals, names, addresses."""

from __future__ import annotations

import re
from functools import cache

from .words import number, plain, whole, yes

_ADDRESS = re.compile(r"\[\s*([^+\-\s]+)\s*(?:([+\-])\s*(-?\w+))?\s*\]")
_AXES = tuple(enumerate("xyz"))
_REGISTERS = {f"%{name}.{axis}": f"{name}(t, {n})" for name in ("ctaid", "nctaid", "ntid") for n, axis in _AXES}
_REGISTERS |= {f"%tid.{axis}": f"t.tid[{n}]" for n, axis in _AXES}
_REGISTERS |= {"%laneid": "t.lane", "%warpid": "(t.number / 32)", "%cluster_ctarank": "cluster_rank(t)"}


@cache
def _in_array(name: str) -> str:
    counted = re.fullmatch(r"%([a-z]+)(\d+)", name)
    return f"_{counted[1]}[{counted[2]}]" if counted else plain(name)


class Operands:
    """What a function's statements name; `line` is that of the statement at hand."""

    def __init__(self, names: dict[str, str], dynamic: str) -> None:
        self.names = dict(names)
        self.dynamic = dynamic
        self.scopes: list[dict[str, str]] = [{}]  # registers of braces, and where they are
        self.line = 0

    def register(self, name: str) -> str:
        """In an array of its kind, but for those of braces: over thousands of variables a compiler takes minutes."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return _in_array(name)

    def value(self, x: str) -> str:
        """An operand's word."""
        if x == self.dynamic:
            return "@dynamic@"
        if x in _REGISTERS or x in self.names:
            return _REGISTERS.get(x) or self.names[x]
        if x[0] == "!":
            return f"!{self.register(x[1:])}"
        return number(x) if x[0].isdigit() or x[0] == "-" else self.register(x)

    def typed(self, kind: str, x: str) -> str:
        """An operand as a number of a kind."""
        return f"{kind}({self.value(x)})" if whole(kind) else f"as<{kind}>({self.value(x)})"

    def address(self, x: str) -> str:
        """What brackets say."""
        base, sign, offset = _ADDRESS.fullmatch(x).groups()  # type: ignore[union-attr]
        return f"({self.value(base)} {sign} {offset})" if sign else self.value(base)

    def pointer(self, mods: list[str], x: str, size: int, writes: bool) -> str:
        """A checked address."""
        if any(m.split("::")[0] == "shared" for m in mods):
            return f"shared_at(t, {self.line}, {self.address(x)}, {size}, {yes(writes)})"
        return f"aligned(t, {self.line}, {self.address(x)}, {size})"
