"""Convolutions whose operands TMA copies, on the emulator: partial boxes, strides, groups, splits, layouts, codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.schedules import conv_boxes
from test_conv_emulated import LAST, run
from test_quantized_conv import integers, last, on_row, sums

pytestmark = pytest.mark.usefixtures("emulation")


@pytest.mark.parametrize(
    ("shape", "filters", "given", "cols", "box"),
    [
        ((3, 64, 6, 5), (72, 64, 3, 2), {"padding": (1, (0, 1))}, 64, (5, 6, 1, 3)),
        ((1, 64, 9, 31), (136, 64, 2, 3), {"padding": ((0, 1), 2), "dilation": (1, 2)}, 192, (31, 4, 1, 1)),
        ((4, 128, 12, 10), (40, 64, 3, 3), {"padding": 1, "stride": 2, "groups": 2}, 64, (5, 6, 1, 4)),
        ((2, 64, 4, 3, 9), (16, 64, 2, 3, 1), {"padding": ((1, 0), 1, 0)}, 64, (9, 3, 4, 1)),
        ((3, 64, 90), (24, 64, 3), {"padding": ((0, 1),), "stride": 3}, 64, (30, 1, 1, 3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_forward(shape: Any, filters: Any, given: Any, cols: int, box: Any, element: str) -> None:
    layouts = (LAST, ("x", "w")) if element == "bfloat16" else (LAST,)
    for laid in layouts:
        desc = bc.ConvDescriptor(shape=shape, filter_shape=filters, activation="relu", element=element, **given)
        step = run(bc.ConvPlan, desc, ("bias", "z", "pre"), laid, "wgmma", 2)[-1]
        assert (step.kernel, step.axes, step.params["box"]) == ("boxes", {"COLS": cols}, box)


@pytest.mark.parametrize(("outputs", "cols"), [(192, 192), (256, 256), (320, 192), (136, 192), (128, 128)])
def test_widths_of_tiles(outputs: int, cols: int) -> None:
    """As many columns as make fewest rounds of the multiprocessors; a half or a last piece of a tile."""
    desc = bc.ConvDescriptor(shape=(1, 64, 128), filter_shape=(outputs, 64, 1), element="bfloat16")
    assert run(bc.ConvPlan, desc, ("bias",), LAST, "wgmma", 1)[-1].axes == {"COLS": cols}


def test_same_bits_as_tiles_that_threads_copy() -> None:
    rng = np.random.default_rng(0)
    x, w = (last(rng.standard_normal(s).astype("f2")) for s in ((4, 64, 5, 6), (72, 64, 3, 3)))
    found = []
    for served in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not served:
                patch.setattr(conv_boxes, "_FULL", 2.0)
            y = last(np.zeros((4, 72, 5, 6), "f2"))
            desc = bc.ConvDescriptor(shape=x.shape, filter_shape=w.shape, padding=1, element="float16")
            steps = on_row("wgmma", desc, 3, bc.ConvPlan, x=x, w=w, y=y)
            found.append((steps[-1].kernel, y))
    assert [kernel for kernel, _ in found] == ["boxes", "wgmma"]
    assert found[0][1].tobytes() == found[1][1].tobytes()


@pytest.mark.parametrize(
    ("shape", "filters", "given", "splits"),
    [
        ((4, 64, 8, 4), (72, 64, 3, 3), {"padding": 1}, 1),
        ((4, 96, 4, 4), (24, 48, 2, 3), {"padding": ((0, 1), 1), "groups": 2}, 1),
        ((2, 64, 16, 8), (136, 64, 3, 1), {"padding": (1, 0), "stride": 2}, 1),
        ((2, 56, 2, 8, 4), (8, 56, 1, 3, 3), {"padding": (0, 2, 2), "dilation": (1, 2, 2)}, 1),
        ((3, 64, 384), (8, 64, 3), {"padding": 1}, 2),
        ((30, 64, 6, 6), (8, 64, 1, 1), {}, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("laid", [LAST, ("x", "w"), ("dy",)])
def test_filters(shape: Any, filters: Any, given: Any, splits: int, laid: Any) -> None:
    """Partial panels and boxes of the batch, groups, strides; a split alone writes the gradient itself."""
    desc = bc.ConvBackwardDescriptor(shape=shape, filter_shape=filters, element="bfloat16", **given)
    steps = run(bc.ConvBackwardPlan, desc, ("dw",), laid, "wgmma", 2)
    assert [s.kernel for s in steps if s.kernel != "pack"] == ["filter_boxes"] + ["merge"] * (splits > 1)
    if splits > 1:
        assert steps[-1].params["splits"] == splits


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_all_gradients_of_a_transposed_convolution(element: str) -> None:
    desc = bc.ConvBackwardDescriptor(
        shape=(2, 64, 8, 8), filter_shape=(64, 64, 2, 2), input_dilation=2, padding=1, transposed=True,
        element=element,
    )  # fmt: skip
    steps = run(bc.ConvBackwardPlan, desc, ("dx", "dw", "dbias"), LAST, "wgmma", 4)
    assert {"boxes", "filter_boxes"} <= {s.kernel for s in steps}


def test_what_boxes_do_not_serve() -> None:
    """Extents that no box of 64 fills, few channels, odd extents under a stride, strides of three axes."""
    for shape, filters, given in (
        ((2, 64, 7, 9), (8, 64, 3, 3), {"padding": 1}), ((4, 24, 8, 8), (8, 24, 1, 1), {}),
        ((4, 64, 15, 15), (8, 64, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 64, 8, 8, 8), (8, 64, 2, 2, 2), {"stride": 2}),
    ):  # fmt: skip
        desc = bc.ConvBackwardDescriptor(shape=shape, filter_shape=filters, element="bfloat16", **given)
        assert "filter_boxes" not in {s.kernel for s in run(bc.ConvBackwardPlan, desc, ("dw",), LAST, "wgmma", 2)}


@pytest.mark.parametrize("kind", ["sums", "requantized"])
@pytest.mark.parametrize(("xd", "wd"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
@pytest.mark.parametrize("zero", [True, False])
def test_integers(xd: str, wd: str, zero: bool, kind: str) -> None:
    given: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 0), (0, 1)), "dilation": (1, 2), "groups": 2}
    if zero:  # whose windows must lie inside
        given["padding"] = ((0, 0), (0, 0))
    outputs = 22 if zero else 32  # vectors in single elements, or in pieces
    x, w = integers(xd, 4, 256, 9, 8), integers(wd, outputs, 128, 2, 3)
    zx = integers(xd, 1)[0] if zero else 0
    s = sums(x, w, int(zx), 0, **given)
    arrays: dict[str, Any] = {"x": last(x), "w": last(w)} | ({"zero_x": np.array(zx)} if zero else {})
    want: Any = s
    if kind == "requantized":
        by, whole = np.linspace(0.01, 0.1, outputs).astype(np.float32), xd == "uint8"
        bias = np.linspace(-900, 900, outputs).astype(np.int32 if whole else np.float32)
        arrays |= {"scale_w": by, "bias": bias, "scale_y": np.array(90.0, np.float32)}
        each, more = by.astype(float)[:, None, None], bias.astype(float)[:, None, None]
        want = np.clip(np.rint(((s + more) * each if whole else s * each + more) / 90.0), -128, 127)
    y = last(np.zeros(s.shape, np.int32 if kind == "sums" else np.int8))
    desc = bc.QuantizedConvDescriptor(
        shape=x.shape, filter_shape=w.shape, **given, kind=kind, element=xd, w_element=wd,
        out_element="int32" if kind == "sums" else "int8", bias_element="int32" if xd == "uint8" else "float32",
    )  # fmt: skip
    steps = on_row("wgmma", desc, 3, **arrays, y=y)
    assert [step.kernel for step in steps] == ["filter_sums"] * zero + ["boxes"]
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("outputs", [24, 136])
def test_fp8(element: str, outputs: int) -> None:
    rng = np.random.default_rng(0)
    dtype = ElementKind.of(element).dtype
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 128, 6, 7), (outputs, 128, 3, 2)))
    desc = bc.ScaledConvDescriptor(
        shape=x.shape, filter_shape=w.shape, padding=1, element=element, out_element="float32"
    )
    y = last(np.zeros(desc.out_shape, np.float32))
    (step,) = on_row("wgmma", desc, 2, bc.ScaledConvPlan, x=last(x).view(np.uint8), w=last(w).view(np.uint8), y=y)
    assert (step.kernel, step.axes["COLS"]) == ("boxes", 64 if outputs == 24 else 128)
    plain: dict[str, Any] = {"shape": x.shape, "filter_shape": w.shape, "padding": 1, "element": "float64"}
    want = bc.conv_nd(x.astype(np.float64), w.astype(np.float64), padding=1)
    size = bc.conv_nd(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)), padding=1)
    assert (np.abs(y - want) <= 1e-4 * size + 1e-6).all(), plain
