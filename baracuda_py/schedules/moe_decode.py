"""The launches of `moe_decode` (kernels/moe/decode_stream.cu, decode_simt.cu): into the chosen experts, and back."""

from __future__ import annotations

import math
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from . import gemm_skinny
from .gemm import ACTIVATIONS, EPILOGUE, dense, wide_view
from .gemm_wgmma import HALVES, operand_map
from .geometry import grid, strides_of

SLOTS = 256  # choices of all tokens together, which blocks sort for themselves
CHOICES = 32  # of a token: more would be added in another order than many tokens' are
ROWS = 32  # slots of a work tile
ELEMENTS = HALVES
UNITS = (*ACTIVATIONS, "swiglu_oai")
_THREADS = 256  # of the kernels for any strides
_INT32 = 2**31

_SHARED: dict[str, Any] = {
    **dict.fromkeys(("indices", "weights", "bias", "up_bias"), "ptr"), "index_steps": "i64[2]",
    "weight_steps": "i64[2]", "bias_steps": "i64[2]", "up_bias_steps": "i64[2]", "y_steps": "i64[2]", "n": "i64",
    "k": "i64",
    **dict.fromkeys(("tokens", "choices", "experts", "activation", "oai", "wide_indices", "wide_weights"), "i32"),
    "decode_slots": SLOTS, "decode_rows": ROWS, "decode_threads": _THREADS, **EPILOGUE,
}  # fmt: skip
STREAM = Params(
    "MoeStreamParams", a_map="map", b_map="map", up_map="map", made="ptr", counters="ptr", y="ptr", pitch="i64",
    **dict.fromkeys(("b_step", "up_step", "share", "column_tiles", "clear", "wide_y"), "i32"), **_SHARED,
    **gemm_skinny.SIZES,
)  # fmt: skip
SIMT = Params(
    "MoeSimtParams", x="ptr", b="ptr", up="ptr", hidden="ptr", y="ptr", x_steps="i64[2]", b_steps="i64[3]",
    up_steps="i64[3]", **_SHARED,
)  # fmt: skip
_BOTH = (False, True)


def _streaming(name: str, gated: tuple[bool, ...], last: bool) -> Kernel:
    return Kernel(
        name, f"moe_decode_stream<{{T}}, {{ACROSS}}, {{GATED}}, {str(last).lower()}>", STREAM,
        {"ACROSS": _BOTH, "GATED": gated}, gemm_skinny.THREADS, 1, source="moe/decode_stream.cu",
    )  # fmt: skip


STREAM_KERNELS = (_streaming("hidden", _BOTH, False), _streaming("out", (False,), True))
SIMT_KERNELS = (
    Kernel("hidden", "moe_decode_hidden<{T}, {GATED}>", SIMT, {"GATED": _BOTH}, _THREADS),
    Kernel("out", "moe_decode_out<{T}>", SIMT, {}, _THREADS),
)


def _values(p: Problem, last: bool) -> dict[str, Any]:
    """Parameters that both designs have: of the first product, or of the last."""
    desc = p.desc
    bias, up_bias = (p.down_bias, None) if last else (p.gate_bias, p.up_bias)
    return {
        "index_steps": p.indices.strides, "weight_steps": p.weights.strides, "bias_steps": strides_of(bias, 2),
        "up_bias_steps": strides_of(up_bias, 2), "y_steps": p.y.strides, "n": desc.d_out if last else desc.f,
        "k": desc.f if last else desc.d, "tokens": desc.tokens, "choices": desc.k, "experts": desc.experts,
        "activation": ACTIVATIONS.index("none" if desc.activation == "swiglu_oai" else desc.activation),
        "oai": desc.activation == "swiglu_oai", "wide_indices": p.indices.element is ElementKind.I64,
        "wide_weights": p.weights.element is desc.element.acc,
        "bias": _named(p, "down_bias" if last else "gate_bias"),
        "up_bias": "@null" if last else _named(p, "up_bias"),
    }  # fmt: skip


def _named(p: Problem, name: str) -> str:
    return "@null" if p.views[name] is None else name


def _held(rows: int, columns: int) -> View:
    """Rows of the workspace that start 16-byte aligned."""
    pitch = max(-(-columns // 8) * 8, 8)
    return View(0, (rows, columns), (pitch, 1), ElementKind.BF16)


def stream(p: Problem) -> Geometry | str:
    """By TMA and the tensor cores of warpgroups, or why not."""
    desc, slots = p.desc, p.desc.tokens * p.desc.k
    if 0 in (desc.tokens, desc.experts, desc.d, desc.f, desc.d_out):
        return "there is nothing to multiply"
    if slots > SLOTS or desc.k > CHOICES:
        return f"{desc.tokens} tokens of {desc.k} choices are not few: {SLOTS} choices, {CHOICES} of a token, at most"
    if max(desc.d, desc.f, desc.d_out) >= _INT32 - 128:
        return "an extent passes 32 bits"
    h, z = _held(slots, desc.f), _held(slots, desc.d_out)
    h_bytes, z_bytes = (aligned(slots * view.strides[0] * desc.element.itemsize) for view in (h, z))
    x_map = operand_map("x", p.x, 1, (False,))
    if isinstance(x_map, str):
        return x_map
    inner, step = desc.f, h.strides[0] * desc.element.itemsize
    h_map = TensorMap("@workspace", desc.element, (inner, slots, 1), (step, step * slots), (64, 1, 1))
    first = _launch(p, "hidden", ("gate", "up") if p.up is not None else ("gate",), x_map[0], desc.f)
    last = _launch(p, "out", ("down",), h_map, desc.d_out)
    if isinstance(first, str):
        return first
    if isinstance(last, str):
        return last
    counters = ("@workspace", h_bytes + z_bytes)
    steps = (
        _step(p, "hidden", first, {"made": ("@workspace", 0), "pitch": h.strides[0], "counters": counters,
              "clear": last["column_tiles"]}),
        _step(p, "out", last, {"made": ("@workspace", h_bytes), "pitch": z.strides[0], "counters": counters,
              "clear": 0}),
    )  # fmt: skip
    workspace = h_bytes + z_bytes + aligned(4 * last["column_tiles"])
    return Geometry(steps, workspace, "contiguous" if dense(p) else "strided")


def _launch(p: Problem, name: str, matrices: tuple[str, ...], a_map: TensorMap, n: int) -> dict[str, Any] | str:
    """Maps, how many columns a tile has, and how many tiles there are along n."""
    most = min(p.desc.tokens * p.desc.k, p.desc.experts)  # chunks, if tokens choose different experts
    rights, sms = len(matrices), max(1, p.device.sms)
    share = gemm_skinny.best_share(lambda share: math.ceil(-(-n // share) * most / sms), rights, 1)
    for lines in (share, 64):
        found = [operand_map(name, p.views[name], lines) for name in matrices]
        if refused := next((one for one in found if isinstance(one, str)), None):
            return refused
        maps = [one for one in found if not isinstance(one, str)]
        across = maps[0][1]
        if any(one[1] != across for one in maps):
            return "gate and up are dense along different axes"
        share = lines
        if not across:  # else a line is 64 columns
            break
    return {
        "a_map": a_map, "b_map": maps[0][0], "b_step": maps[0][2], "up_map": maps[1][0] if rights == 2 else None,
        "up_step": maps[1][2] if rights == 2 else 0, "share": share, "column_tiles": -(-n // share),
        "across": across, "most": most, "gated": rights == 2, "last": name == "out",
    }  # fmt: skip


def _step(p: Problem, kernel: str, found: dict[str, Any], more: dict[str, Any]) -> Step:
    values = {name: value for name, value in found.items() if name not in ("across", "most", "gated", "last")}
    values |= {**_values(p, found["last"]), "wide_y": wide_view(p.y), **more}
    blocks = min(found["most"] * found["column_tiles"], max(1, p.device.sms))
    smem = gemm_skinny.shared_memory(ROWS, 1 + found["gated"])
    axes = {"ACROSS": found["across"], "GATED": found["gated"]}
    return Step(kernel, (blocks, 1, 1), values, axes, gemm_skinny.THREADS, smem)


def simt(p: Problem) -> Geometry | str:
    """For any strides: a warp makes one number."""
    desc, gated = p.desc, p.up is not None
    if max(desc.tokens * desc.k, desc.experts) >= _INT32:
        return "an extent passes 32 bits"
    null = (0, 0, 0)
    slots, warps = desc.tokens * desc.k, _THREADS // 32
    hidden = {
        **_values(p, False), "x_steps": p.x.strides, "b": "gate", "b_steps": p.gate.strides,
        "up": _named(p, "up"), "up_steps": p.up.strides if gated else null, "hidden": ("@workspace", 0),
    }  # fmt: skip
    out = {
        **_values(p, True), "x_steps": (0, 0), "b": "down", "b_steps": p.down.strides, "up": "@null", "up_steps": null,
        "hidden": ("@workspace", 0),
    }  # fmt: skip
    steps = []
    if slots * desc.f and desc.experts:
        steps.append(Step("hidden", grid(-(-slots * desc.f // warps)), hidden, {"GATED": gated}, _THREADS))
    if desc.tokens * desc.d_out:
        steps.append(Step("out", grid(-(-desc.tokens * desc.d_out // warps)), out, {}, _THREADS))
    workspace = aligned(slots * desc.f * desc.element.itemsize)
    return Geometry(tuple(steps), workspace, "contiguous" if dense(p) else "strided")
