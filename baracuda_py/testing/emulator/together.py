"""Instructions that threads have a part in together, and what the hardware does behind the program, as C++."""

from __future__ import annotations

import re

from .operands import Operands
from .words import parts_of, yes

_BULK = {"bulk.global.shared::cta.bulk_group": False, "reduce.bulk.global.shared::cta.bulk_group.add.f32": True}
_VOTES = {"red.or": "any", "red.and": "all", "red.popc": "count"}
_DEPTHS = {"f16": "16", "bf16": "16", "tf32": "8", "e4m3": "32", "e5m2": "32"}  # of products, along k
_BYTES = ("s8", "u8")
_TENSOR = re.compile(r"bulk\.tensor\.(\d)d\.(\w+)")
_BOX = re.compile(r"\[\s*([^,]+?)\s*,\s*\{([^}]*)\}\s*\]")  # a map and coordinates


class Together(Operands):
    """A method an instruction: its qualifiers and operands as a statement."""

    def _shfl(self, mods: list[str], ops: list[str]) -> str:
        d, _, p = ops[0].partition("|")
        values = ", ".join(self.value(x) for x in ops[1:])
        found = f", &{self.register(p)}" if p else ""
        return f"{self.register(d)} = shfl(t, {self.line}, Shuffle::{mods[1]}, {values}{found});"

    def _vote(self, mods: list[str], ops: list[str]) -> str:
        return self._ballot(ops[0], mods[1], ops[1], ops[2])

    def _match(self, mods: list[str], ops: list[str]) -> str:
        return self._ballot(ops[0], {"any.sync.b32": "match"}[".".join(mods)], ops[1], ops[2])

    def _elect(self, mods: list[str], ops: list[str]) -> str:
        return self._ballot(ops[0].partition("|")[2], "elect", "1", ops[1])

    def _ballot(self, to: str, how: str, x: str, mask: str) -> str:
        return f"{self.register(to)} = vote(t, {self.line}, Vote::{how}, {self.value(x)}, {self.value(mask)});"

    def _bar(self, mods: list[str], ops: list[str]) -> str:
        values = [self.value(x) for x in ops]
        if mods[0] == "cluster":
            return f"cluster_{mods[1]}(t, {self.line});"
        if mods[0] == "warp":
            return f"bar_warp(t, {self.line}, {values[0]});"
        if mods[0] == "red":
            how, count = _VOTES[".".join(mods[:2])], values[2] if len(ops) == 4 else "0"
            call = f"barrier(t, {self.line}, {values[1]}, {count}, true, Reduce::{how}, {values[-1]})"
            return f"{self.register(ops[0])} = {call};"
        waits = {"sync": True, "arrive": False}[mods[0]]
        return f"barrier(t, {self.line}, {values[0]}, {values[1] if len(ops) > 1 else '0'}, {yes(waits)});"

    _barrier = _bar

    def _ldmatrix(self, mods: list[str], ops: list[str]) -> str:
        parts = parts_of(ops[0])
        words = " ".join(f"{self.register(p)} = x[{n}];" for n, p in enumerate(parts))
        call = f"ldmatrix(t, {self.line}, x, {len(parts)}, {yes('trans' in mods)}, {self.address(ops[1])});"
        return f"{{ u32 x[4]; {call} {words} }}"

    def _stmatrix(self, mods: list[str], ops: list[str]) -> str:
        parts = parts_of(ops[1])
        words = ", ".join(self.value(p) for p in parts)
        call = f"stmatrix(t, {self.line}, x, {len(parts)}, {yes('trans' in mods)}, {self.address(ops[0])});"
        return f"{{ const u32 x[] = {{{words}}}; {call} }}"

    def _movmatrix(self, mods: list[str], ops: list[str]) -> str:
        return f"{self.register(ops[0])} = movmatrix(t, {self.line}, {self.value(ops[1])});"

    def _mma(self, mods: list[str], ops: list[str]) -> str:
        if mods[2:] == ["m8n8k4", "row", "col", *["f64"] * 4]:
            return self._mma_doubles(ops)
        if mods[2:6] == ["m16n8k32", "row", "col", "s32"] and {*mods[6:8]} <= {*_BYTES} and mods[8:] == ["s32"]:
            return self._mma_bytes(mods[6:8], ops)
        depth = mods[2].removeprefix("m16n8k")
        if mods[3:6] != ["row", "col", "f32"] or mods[6] != mods[7] or _DEPTHS[mods[6]] != depth:
            raise ValueError(mods)
        d, a, b, c = (parts_of(x) for x in ops)
        results = " ".join(f"{self.register(x)} = bits(x[{n}]);" for n, x in enumerate(d))
        left, right = (", ".join(self.value(x) for x in of) for of in (a, b))
        sums = ", ".join(self.typed("f32", x) for x in c)
        given = f"const u32 a[] = {{{left}}}, b[] = {{{right}}}; const float c[] = {{{sums}}};"
        return f"{{ float x[4]; {given} mma(t, {self.line}, Half::{mods[6]}, x, a, b, c); {results} }}"

    def _mma_bytes(self, kinds: list[str], ops: list[str]) -> str:
        d, *given = (parts_of(x) for x in ops)
        results = " ".join(f"{self.register(x)} = x[{n}];" for n, x in enumerate(d))
        held = [", ".join(map(self.value, of)) for of in given]
        words = [f"const u32 {to}[] = {{{of}}};" for to, of in zip("abc", held, strict=True)]
        call = f"mma_bytes(t, {self.line}, Half::{kinds[0]}, Half::{kinds[1]}, x, a, b, c);"
        return f"{{ u32 x[4]; {' '.join(words)} {call} {results} }}"

    def _mma_doubles(self, ops: list[str]) -> str:
        d, a, b, c = (parts_of(x) for x in ops)
        results = " ".join(f"{self.register(x)} = bits(x[{n}]);" for n, x in enumerate(d))
        left, right, *sums = (self.typed("f64", x) for x in (*a, *b, *c))
        given = f"double x[2]; const double c[] = {{{', '.join(sums)}}};"
        return f"{{ {given} mma_doubles(t, {self.line}, x, {left}, {right}, c); {results} }}"

    def _wgmma(self, mods: list[str], ops: list[str]) -> str:
        if mods[0] == "fence":
            return ";"
        if mods[0] in ("commit_group", "wait_group"):
            return f"wgmma_{mods[0][:-6]}({', '.join(['t', str(self.line), *ops])});"
        columns, depth = re.fullmatch(r"m64n(\d+)k(\d+)", mods[3]).groups()  # type: ignore[union-attr]
        alike = mods[5] == mods[6] or set(mods[5:7]) == {"e4m3", "e5m2"}
        if mods[4] == "s32":
            known = {*mods[5:7]} <= {*_BYTES} and depth == "32" and len(ops) == 4
        else:
            known = mods[4] == "f32" and alike and _DEPTHS[mods[5]] == depth and ops[4:6] == ["1", "1"]
        if not known:
            raise ValueError(mods)
        d, held = parts_of(ops[0]), ops[1][0] == "{"
        across = [yes(x == "1") for x in ops[6:]] or ["false", "false"]
        left = f"const u32 a[] = {{{', '.join(self.value(x) for x in parts_of(ops[1]))}}}; " if held else ""
        first = "a, 0, false" if held else f"nullptr, {self.value(ops[1])}, {across.pop(0)}"
        rest = f"{self.value(ops[2])}, {across[0]}, {self.value(ops[3])}"
        call = f"wgmma(t, {self.line}, Half::{mods[5]}, Half::{mods[6]}, {columns}, x, {first}, {rest});"
        results = " ".join(f"{self.register(x)} = x[{n}];" for n, x in enumerate(d))
        return f"{{ u32 x[] = {{{', '.join(self.register(x) for x in d)}}}; {left}{call} {results} }}"

    def _mbarrier(self, mods: list[str], ops: list[str]) -> str:
        if mods[0] == "init":
            return f"mbarrier_init(t, {self.line}, {self.address(ops[0])}, {self.value(ops[1])});"
        if mods[0] == "arrive" and ops[0] == "_" and len(ops) == 2:
            return f"mbarrier_arrive(t, {self.line}, {self.address(ops[1])});"
        if mods[:2] == ["arrive", "expect_tx"] and ops[0] == "_":
            return f"mbarrier_expect(t, {self.line}, {self.address(ops[1])}, {self.value(ops[2])});"
        if mods[:2] in (["try_wait", "parity"], ["test_wait", "parity"]):
            function = "mbarrier_wait" if mods[0] == "try_wait" else "mbarrier_over"
            call = f"{function}(t, {self.line}, {self.address(ops[1])}, {self.value(ops[2])})"
            return f"{self.register(ops[0])} = {call};"
        raise ValueError(mods)

    def _cp(self, mods: list[str], ops: list[str]) -> str:
        what = ".".join(m for m in mods if m not in ("async", "L2::128B"))
        if tensor := _TENSOR.match(what):
            return self._tensor(int(tensor[1]), tensor[2] == "global", ops)
        places = ", ".join(self.address(x) for x in ops if x[0] == "[")
        if what in ("cg.shared.global", "ca.shared.global"):
            return f"cp_async(t, {self.line}, {places}, {ops[2]}, {self.value(ops[-1])});"
        if what == "commit_group":
            return "cp_async_commit(t);"
        if what == "wait_group":
            return f"cp_async_wait(t, {ops[0]});"
        if what == "mbarrier.arrive.noinc.shared::cta.b64":
            return f"cp_async_arrive(t, {self.line}, {places});"
        if what == "bulk.commit_group":
            return "bulk_commit(t);"
        if what in ("bulk.wait_group", "bulk.wait_group.read"):
            return f"bulk_wait(t, {ops[0]});"
        return f"bulk(t, {self.line}, {places}, {self.value(ops[2])}, {yes(_BULK[what])});"

    def _tensor(self, rank: int, stores: bool, ops: list[str]) -> str:
        """A box by TMA: [map, {x, y}], [from], or [to], [map, {x, y}], [barrier] and which blocks."""
        tensor_map, at = _BOX.fullmatch(ops[0 if stores else 1]).groups()  # type: ignore[union-attr]
        box = f"{rank}, {self.value(tensor_map)}, {{{', '.join(self.value(x) for x in parts_of(at))}}}"
        if stores:
            return f"tensor_store(t, {self.line}, {box}, {self.address(ops[1])});"
        blocks = self.value(ops[3]) if len(ops) > 3 else "0"
        return f"tensor_load(t, {self.line}, {box}, {self.address(ops[0])}, {self.address(ops[2])}, {blocks});"

    def _mapa(self, mods: list[str], ops: list[str]) -> str:
        return f"{self.register(ops[0])} = mapa(t, {self.line}, {self.value(ops[1])}, {self.value(ops[2])});"
