"""Products of a warp or a warpgroup whose left operand is 2:4 sparse, and of bits, as C++."""

from __future__ import annotations

import re

from .together import Together
from .words import parts_of

_SPARSE = {"m16n8k32": ("f32", ("f16", "bf16")), "m16n8k64": ("s32", ("s8",))}  # sums and operands
_BITS = ["sync", "aligned", "m16n8k256", "row", "col", "s32", "b1", "b1", "s32", "xor", "popc"]


_WARPGROUP = {  # sums, and what follows the predicate: signs, and that k is inside a row
    "k32": ("f32", ("f16", "bf16"), ["1", "1", "0", "0"]),
    "k64": ("s32", ("s8",), []),
}


class Packed(Together):
    """Those of `mma` and `wgmma` that `Together` does not know."""

    def _mma(self, mods: list[str], ops: list[str]) -> str:
        if mods[0] == "sp::ordered_metadata":
            return self._mma_sparse(mods, ops)
        return self._products("mma_bits", "", ops) if mods == _BITS else super()._mma(mods, ops)

    def _mma_sparse(self, mods: list[str], ops: list[str]) -> str:
        sums, kinds = _SPARSE[mods[3]]
        kind = mods[7]
        if mods[4:] != ["row", "col", sums, kind, kind, sums] or kind not in kinds or int(ops[5], 0) != 0:
            raise ValueError(mods)
        return self._products("mma_sparse", f"Half::{kind}, ", ops)

    def _wgmma(self, mods: list[str], ops: list[str]) -> str:
        if mods[:2] != ["mma_async", "sp"]:
            return super()._wgmma(mods, ops)
        columns, depth = re.fullmatch(r"m64n(\d+)(k\d+)", mods[4]).groups()  # type: ignore[union-attr]
        sums, kinds, rest = _WARPGROUP[depth]
        kind = mods[6]
        if mods[5:] != [sums, kind, kind] or kind not in kinds or int(ops[4], 0) != 0 or ops[6:] != rest:
            raise ValueError(mods)
        d = [self.register(x) for x in parts_of(ops[0])]
        given = ", ".join(self.value(ops[n]) for n in (1, 2, 3, 5))
        results = " ".join(f"{x} = x[{n}];" for n, x in enumerate(d))
        call = f"wgmma_sparse(t, {self.line}, Half::{kind}, {columns}, x, {given});"
        return f"{{ u32 x[] = {{{', '.join(d)}}}; {call} {results} }}"

    def _products(self, call: str, kind: str, ops: list[str]) -> str:
        """d, a, b, c as words, and the metadata if there is."""
        d, *given = (parts_of(x) for x in ops[:4])
        words = [
            f"const u32 {to}[] = {{{', '.join(map(self.value, of))}}};" for to, of in zip("abc", given, strict=True)
        ]
        more = f", {self.value(ops[4])}" if len(ops) > 4 else ""
        results = " ".join(f"{self.register(x)} = x[{n}];" for n, x in enumerate(d))
        return f"{{ u32 x[4]; {' '.join(words)} {call}(t, {self.line}, {kind}x, a, b, c{more}); {results} }}"
