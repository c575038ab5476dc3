"""ONNX's convolutions and MaxUnpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import baracuda_py as bc

from .onnx_node import Node, need


def _numbers(n: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    return tuple(n.get("strides") or (1,) * rank), tuple(n.get("dilations") or (1,) * rank)


def _same(total: Sequence[int], upper: bool) -> list[tuple[int, int]]:
    """What there is in all, before and behind; the odd one behind where it is `upper`."""
    return [(t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in total]


def _pads(n: Node, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Any:
    auto, rank = n.get("auto_pad", "NOTSET"), len(kernel)
    if auto.startswith("SAME"):
        axes = zip(x.shape[2:], kernel, strides, dilations, strict=True)
        return _same([max((-(-m // s) - 1) * s + (k - 1) * d + 1 - m, 0) for m, k, s, d in axes], auto == "SAME_UPPER")
    given = (n.get("pads") if auto == "NOTSET" else None) or (0,) * (2 * rank)
    return list(zip(given[:rank], given[rank:], strict=True))


def _facts(n: Node, x: Any, w: Any) -> dict[str, Any]:
    strides, dilations = _numbers(n, w.ndim - 2)
    return {
        "stride": strides, "dilation": dilations, "padding": _pads(n, x, w.shape[2:], strides, dilations),
        "groups": n.get("group", 1),
    }  # fmt: skip


def _conv(n: Node) -> Any:
    return bc.conv_nd(n[0], n[1], n[2], **_facts(n, n[0], n[1]))


def _transposed(n: Node) -> Any:
    x, w, rank, auto = n[0], n[1], n[1].ndim - 2, n.get("auto_pad", "NOTSET")
    strides, dilations = _numbers(n, rank)
    more, shape = tuple(n.get("output_padding") or (0,) * rank), n.get("output_shape")
    if shape is None and auto.startswith("SAME"):
        shape = [m * s for m, s in zip(x.shape[2:], strides, strict=True)]
    spans = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    if shape is None:
        pads = _pads(n, x, w.shape[2:], strides, dilations)
    else:
        axes = zip(x.shape[2:], strides, spans, more, shape[-rank:], strict=True)
        pads = _same([(m - 1) * s + o + span + 1 - want for m, s, span, o, want in axes], auto == "SAME_UPPER")
    padding = [(span - low, span - high + o) for span, (low, high), o in zip(spans, pads, more, strict=True)]
    return bc.conv_nd(
        x, w, n[2], padding=padding, dilation=dilations, input_dilation=strides, groups=n.get("group", 1),
        transposed=True,
    )  # fmt: skip


def _integer(n: Node) -> Any:
    return bc.conv_integer(*(n[i] for i in range(4)), **_facts(n, n[0], n[1]))


def _quantized(n: Node) -> Any:
    return bc.qlinear_conv(*(n[i] for i in range(9)), **_facts(n, n[0], n[3]))


def _unpool(n: Node) -> Any:
    """Indices count through the whole tensor; a larger output_shape has zeros behind."""
    x, rank, kernel = n[0], n[0].ndim - 2, n.get("kernel_shape")
    strides, pads = n.get("strides") or (1,) * rank, n.get("pads") or (0,) * (2 * rank)
    axes = zip(x.shape[2:], kernel, strides, pads[:rank], pads[rank:], strict=True)
    size = tuple((m - 1) * s + k - low - high for m, k, s, low, high in axes)
    within = bc.remainder(n[1], int(np.prod(size)))
    function = getattr(bc, f"max_unpool{rank}d")
    y = function(x, within, kernel, strides, pads[:rank], output_size=size)
    if n[2] is None:
        return y
    whole = n.xp.zeros(tuple(n[2].tolist()), x.dtype)
    whole[tuple(slice(0, m) for m in y.shape)] = y
    return whole


def _deformed(n: Node) -> Any:
    strides, dilations = _numbers(n, 2)
    pads = n.get("pads") or (0,) * 4
    need(pads[:2] == pads[2:], "deform_conv2d has the same padding before and behind")
    return bc.deform_conv2d(n[0], n[2], n[1], n[3], strides, pads[:2], dilations, n[4])


CONV: dict[str, Callable[[Node], Any]] = {
    "Conv": _conv, "ConvInteger": _integer, "ConvTranspose": _transposed, "DeformConv": _deformed,
    "MaxUnpool": _unpool, "QLinearConv": _quantized,
}  # fmt: skip
