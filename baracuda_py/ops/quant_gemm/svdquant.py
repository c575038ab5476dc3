"""svdquant_linear: a layer of 4-bit weights and inputs with a low-rank branch in 16 bits beside it (SVDQuant)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...calls.entries import entry
from ...core.checked import shown
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import shape_of, transposed
from ...expressions.elementwise import Expression, elementwise
from ...core.arrays import read
from ..elementwise.cast import cast
from ..gemm.linear import linear
from ..quantize.block_quantize import block_quantize
from ..quantize.dynamic import dynamic_quantize
from ..quantize.format_kinds import FormatKind
from .int_gemm import IntGemmKind, IntGemmPlan, int_gemm
from .lines import over_rows
from .scaled import scaled_matmul

E = ElementKind
_FLOATS = (E.F16, E.BF16, E.F32)
_KINDS = (FormatKind.INT4, FormatKind.NVFP4)


@cache
def _formula(text: str) -> Expression:
    return elementwise(text)


@entry(IntGemmPlan, kind=IntGemmKind.GROUPED, element=E.I8)
def svdquant_linear(
    x: Array, codes: Array, scales: Array, proj_down: Array | None = None, proj_up: Array | None = None,
    smooth_factor: Array | None = None, bias: Array | None = None, *, kind: Any = "int4", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Q(x / smooth_factor) @ Wᵀ + (x @ proj_down) @ proj_upᵀ + bias: 4-bit inputs and weights (SVDQuant, W4A4).

    x [*, in] is float16, bfloat16 or float32, and so are proj_down [in, rank], proj_up [out, rank], bias [out] and the
    result; smooth_factor [in] is of any float. kind int4: W is what `block_quantize` made of groups of 32, 64 (as in
    Nunchaku) or 128, codes uint8 [out, in / 2], or int8 [out, in] unpacked once (`cast(codes, "int8",
    element="int4")`), scales float32 [out, groups]; Q is `dynamic_quantize` to int4 of the same groups, sums of a group
    are exact and add up in float32 (`IntGemmPlan`). kind nvfp4: groups of 16 with float8 scales, by `scaled_matmul`.
    Quotients are float32; each of the two products is rounded to x's element (of nvfp4 the sum alone), and so is
    x @ proj_down. The low-rank branch takes x as it is: the paper's, of x / smooth_factor, has the rows of proj_down
    divided by smooth_factor before. Li et al., SVDQuant, 2024. Several launches; there is no gradient.
    """
    options = {"stream": stream, "preference": preference}
    form, element = next((one for one in _KINDS if kind in (one, one.value)), None), read(x, "x").element
    if form is None:
        raise InvalidProblemError(f"kind must be int4 or nvfp4, got {shown(kind)}")
    if element not in _FLOATS:
        raise UnsupportedError(f"svdquant_linear takes x in float16, bfloat16 or float32, got {element}")
    shape, stored, held = shape_of(x, "x"), shape_of(codes, "codes"), read(codes, "codes").element
    plain = held is E.I8 and form is FormatKind.INT4
    if not shape or len(stored) != 2 or stored[1] * (1 if plain else 2) != shape[-1]:
        raise InvalidProblemError(f"x must be [*, in] and codes [out, in / 2], got {shape} and {stored} of {held}")
    n, k = stored[0], shape[-1]
    if (proj_down is None) != (proj_up is None):
        raise InvalidProblemError("proj_down and proj_up must both be given, or neither")
    if proj_down is not None:
        down, up = shape_of(proj_down, "proj_down"), shape_of(proj_up, "proj_up")
        if len(down) != 2 or down[0] != k or up != (n, down[1]):
            raise InvalidProblemError(f"proj_down must be [{k}, rank] and proj_up [{n}, rank], got {down} and {up}")
    if smooth_factor is not None and shape_of(smooth_factor, "smooth_factor") != (k,):
        raise InvalidProblemError(
            f"smooth_factor must have shape {(k,)}, got {shape_of(smooth_factor, 'smooth_factor')}"
        )
    by = shape_of(scales, "scales")
    if len(by) != 2 or by[0] != n or (k and (not by[1] or k % by[1])):
        raise InvalidProblemError(f"scales must be [{n}, groups] of groups that divide {k}, got {by}")

    def product(rows: Any, to: Any) -> Any:
        even = rows
        if smooth_factor is not None:
            even = _formula("float32(x) / float32(s)")(x=rows, s=smooth_factor, **options)
        low = None if proj_down is None else linear(rows, transposed(proj_down, "proj_down"), **options)
        if form is FormatKind.NVFP4:
            left, left_scales = block_quantize(even, kind=form, **options)
            sums = scaled_matmul(left, codes, left_scales, scales, kind=form, **options)
            more = {} if bias is None else {"b": bias}
            more |= {} if low is None else {"l": linear(low, proj_up, **options)}
            text = " + ".join(["a", *(f"float32({name})" for name in more)])
            return _formula(f"{element}({text})")(a=sums, **more, out=to, **options)
        group = k // by[1] if k else 64
        left, left_scales = dynamic_quantize(even, scope="group", group_size=group, to_element=E.S4, **options)
        unpacked = {"to_element": E.I8, "element": E.S4, **options}
        last = low is None
        base = int_gemm(
            cast(left, **unpacked), transposed(codes if plain else cast(codes, **unpacked), "codes"),
            scale_a=left_scales, scale_b=transposed(scales, "scales"), bias=bias, kind=IntGemmKind.GROUPED,
            group=group, out_element=element, out=to if last else None, **options,
        )  # fmt: skip
        return base if last else linear(low, proj_up, residual=base, out=to, **options)

    return over_rows(product, x, "x", n, out)
