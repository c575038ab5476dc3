"""KAIO's matrix products by its names: float16 or bfloat16 in, float32 out, on tensor cores, over `GemmPlan`.

Shapes are those of `matmul`, any m, n and k. KAIO has a kernel for each name, one that copies by cp.async and one that
does not; here both names take the rows of `GemmPlan`, all of which overlap copies and products, so they give the same
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import Array, ElementKind
from ...core.errors import UnsupportedError
from ...calls.entries import entry
from ...core.arrays import read
from .gemm import GemmPlan
from .matmul import matmul


def _entry(name: str, kind: ElementKind) -> Callable[..., Any]:
    def function(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
        for operand, array in (("a", a), ("b", b)):
            if (got := read(array, operand).element) is not kind:
                raise UnsupportedError(f"{name} takes {operand} in {kind}, got {got}; matmul takes every float")
        given = {"out": out, "stream": stream, "preference": preference}
        return matmul(a, b, out_element=ElementKind.F32, element=kind, **given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"a @ b in float32 of {kind} operands on tensor cores: `matmul` with its shapes."
    return entry(GemmPlan, out_element=ElementKind.F32)(function)


matmul_tc = _entry("matmul_tc", ElementKind.F16)
matmul_tc_async = _entry("matmul_tc_async", ElementKind.F16)
matmul_tc_bf16 = _entry("matmul_tc_bf16", ElementKind.BF16)
matmul_tc_bf16_async = _entry("matmul_tc_bf16_async", ElementKind.BF16)
