"""Instances of the tensor-core kernels for few rows of x that spill some words.

What lives around the loop along k, and little within it: two blocks on a multiprocessor are worth that.
"""

from __future__ import annotations

from ...core import where
from ...core.variant import Where
from ..quantize.format_kinds import FormatKind


def _of(tiles: int, kinds: str) -> Where:
    return where(NT=tiles, kind=tuple(FormatKind[kind] for kind in kinds.upper().split()))


BLOCK_GEMM = {
    "few": _of(1, "int4 uint4 q3_k q6_k") | _of(2, "uint8 int4 uint4 q3_k q5_k q6_k"),
    "wide": _of(2, "int8 uint8 int4 uint4 nf4 fp4 iq4_nl q3_k q5_k q6_k"),
    "rows": _of(8, "int8 uint8 int4 uint4 uint3 uint2"),
}
QKV_GEMM = {
    "few": _of(1, "int4 uint4") | _of(2, "uint8 int4 uint4 q6_k"),
    "wide": _of(2, "int8 uint8 int4 uint4 nf4 q6_k"),
    "rows": _of(8, "int8 int4 uint4 q4_k q6_k"),
}
GROUPED_BLOCK_GEMM = {"rows": _of(4, "uint8 int4 uint4 uint2")}
