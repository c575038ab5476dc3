"""rms_norm_quantize and layer_norm_quantize: norms whose result is 8 or 4 bits, with a scale for each row or block."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind, Scalar
from ...calls.functional import functional
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from .norm_quantize import NormQuantizeKind, NormQuantizePlan
from .norm_quantize_blocks import NormQuantizeBlocksPlan

E, K = ElementKind, NormQuantizeKind
_rows = {kind: functional(NormQuantizePlan, kind=kind) for kind in K}
_blocks = {kind: functional(NormQuantizeBlocksPlan, kind=kind) for kind in K}


def _quantized(
    kind: NormQuantizeKind, operands: tuple[Any, ...], scale: Any, to_element: Any, block: int | None,
    scale_element: Any, normalized_shape: Any, facts: dict[str, Any],
) -> Any:  # fmt: skip
    """The call; of what is left out, float4 has blocks of 16 with float8_e4m3fn, and powers of two blocks of 32."""
    goal, held = E.of(to_element), None if scale_element is None else E.of(scale_element)
    facts |= {} if normalized_shape is None else {"normalized_shape": normalized_shape}
    if block is None:
        block = 32 if held is E.E8M0 else 16 if goal is E.FP4E2M1 else 0
    block = whole("block", block, 0)
    if block == 0:
        if held not in (None, E.F32) or goal is E.FP4E2M1:
            what = f"to_element {goal}" if held in (None, E.F32) else f"scale_element {held}"
            raise InvalidProblemError(f"block must be above 0 with {what}: the scales of rows are for 8 bits, float32")
        static = scale is not None
        return _rows[kind](
            *operands, to_element=goal, static=static, scale=scale if static else 1.0, return_scales=not static, **facts
        )
    if held is None:
        held = E.F32 if goal is not E.FP4E2M1 else E.E8M0 if block == 32 else E.FP8E4M3
    if scale is not None and held is not E.FP8E4M3:
        raise InvalidProblemError(
            f"scale with blocks is beside scales of {E.FP8E4M3}; with scale_element {held} it must be None"
        )
    facts["scale"] = 1.0 if scale is None else scale
    return _blocks[kind](*operands, to_element=goal, block=block, scale_element=held, **facts)


@entry(NormQuantizePlan, kind=K.RMS_NORM)
def rms_norm_quantize(
    x: Array, weight: Array | None = None, residual: Array | None = None, *, scale: Scalar = None,
    to_element: Any = "float8_e4m3fn", block: int | None = None, scale_element: Any = None,
    normalized_shape: Any = None, eps: float = 1e-6, weight_offset: float = 0.0, return_h: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, scales): rms_norm(x + residual) in 8 or 4 bits, with a scale for each row or block.

    to_element: float8_e4m3fn, float8_e5m2 or int8, with a scale for each row; with `scale`, a number or a 0-d array,
    that is the scale of all rows, and y alone is returned (`NormQuantizePlan`). float4_e2m1fn, two a byte, is NVFP4:
    blocks of 16 columns with scales of float8_e4m3fn, times `scale` where that is given; with block=32 it is MXFP4.
    block (16, 32, 64, 128) and scale_element (float32, float8_e8m0fnu, float8_e4m3fn) may be given for each
    (`NormQuantizeBlocksPlan`). return_h: also x + residual, last.
    """
    facts = {
        "eps": eps, "weight_offset": weight_offset, "return_h": return_h, "out": out, "stream": stream,
        "preference": preference,
    }  # fmt: skip
    operands = (x, weight, None, residual)
    return _quantized(K.RMS_NORM, operands, scale, to_element, block, scale_element, normalized_shape, facts)


@entry(NormQuantizePlan, kind=K.LAYER_NORM)
def layer_norm_quantize(
    x: Array, weight: Array | None = None, bias: Array | None = None, residual: Array | None = None, *,
    scale: Scalar = None, to_element: Any = "float8_e4m3fn", block: int | None = None, scale_element: Any = None,
    normalized_shape: Any = None, eps: float = 1e-5, return_h: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(y, scales): layer_norm(x + residual) in 8 or 4 bits; see `rms_norm_quantize`."""
    facts = {"eps": eps, "return_h": return_h, "out": out, "stream": stream, "preference": preference}
    operands = (x, weight, bias, residual)
    return _quantized(K.LAYER_NORM, operands, scale, to_element, block, scale_element, normalized_shape, facts)
