"""Strided gradients and transposed convolutions phase by phase, and filters' gradients of few channels: emulated."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.schedules.conv_phases import axis_phases
from tests.ops.conv.test_conv_emulated import LAST, run

BACKWARD = bc.ConvBackwardPlan


def test_phases_have_every_output_and_every_hit_once() -> None:
    """Against what each output sees of a spread axis, for all small numbers."""
    for taps, stride, padding, dilation, spread in itertools.product(
        range(1, 5), (1, 2, 3, 4), (-2, 0, 1, 3), (1, 2, 3), (1, 2, 3, 6)
    ):
        seen: dict[int, list[tuple[int, int]]] = {}
        for axis in axis_phases(7, taps, stride, padding, dilation, spread):
            for q in range(axis.outputs):
                window = [q * axis.stride - axis.padding + k * axis.dilation for k in range(axis.taps)]
                hits = [(axis.first_tap + k * axis.taps_apart, e) for k, e in enumerate(window)]
                assert seen.setdefault(axis.first + q * axis.apart, hits) is hits
        for p in range(7):
            places = [(k, stride * p - padding + dilation * k) for k in range(taps)]
            assert seen.pop(p) == [(k, at // spread) for k, at in places if at % spread == 0]
        assert not seen


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize("row", ["wgmma", "mma", "simt"])
@pytest.mark.parametrize(
    ("stride", "dilation", "kernel"), [((2, 1), 1, (3, 2)), ((3, 2), (1, 2), (4, 3)), ((2, 3), 2, (1, 2))]
)
def test_gradient_by_x_of_a_stride(stride: Any, dilation: Any, kernel: Any, row: str, last: tuple[str, ...]) -> None:
    """Asymmetric padding, taps that some remainders lack, two groups; results in float16."""
    desc = bc.ConvBackwardDescriptor(
        shape=(2, 24, 11, 8), filter_shape=(20, 12, *kernel), padding=((1, 2), (2, 0)), stride=stride,
        dilation=dilation, groups=2, element="float16",
    )  # fmt: skip
    steps = run(BACKWARD, desc, ("dx",), last, row)
    made = [s for s in steps if s.kernel != "pack" and s.kernel != "block_filter"]
    if row != "simt" and dilation == 1:
        assert [s.axes["BLOCKS"] for s in made] == [True]
        return
    assert len(made) == np.prod(stride)
    taken = sum(s.params["taps"] * s.params["rows"] for s in made)
    assert taken < 1.5 * np.prod(kernel) * 2 * 11 * 8 / np.prod(stride) + 2 * 11 * 8


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize("row", ["wgmma", "mma"])
@pytest.mark.parametrize("outputs", [3, 16, 40])
def test_blocks_of_outputs(outputs: int, row: str, last: tuple[str, ...]) -> None:
    """Transposed, windows that meet: a row is a block of 2 x 3 outputs, the last blocks partial; one launch."""
    desc = bc.ConvDescriptor(
        shape=(2, 16, 5, 4), filter_shape=(16, outputs, 2, 3), input_dilation=(2, 3), padding=((1, 0), (2, 1)),
        transposed=True, activation="silu", element="bfloat16",
    )  # fmt: skip
    steps = run(bc.ConvPlan, desc, ("bias", "z", "pre"), last, row)
    assert [s.kernel for s in steps if s.kernel != "pack"] == ["block_filter", row] and steps[-1].axes["BLOCKS"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize(
    ("element", "row"), [("float16", "wgmma"), ("bfloat16", "mma"), ("float32", "mma_tf32"), ("float32", "simt")]
)
def test_gradients_of_a_stem(element: str, row: str, last: tuple[str, ...]) -> None:
    """Few channels, a large window and a stride of 2: blocks whose outputs lack some taps of the window."""
    desc = bc.ConvBackwardDescriptor(
        shape=(2, 3, 15, 12), filter_shape=(24, 3, 7, 7), stride=2, padding=3, element=element,
        math_precision="tf32" if row == "mma_tf32" else "element",
    )  # fmt: skip
    steps = run(BACKWARD, desc, ("dx", "dw", "dbias"), last, row)
    assert sum(s.axes.get("BLOCKS", False) for s in steps) == (row != "simt")
    assert sum(s.kernel == "pack_runs" for s in steps) == (row != "simt")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize(("element", "row"), [("bfloat16", "wgmma"), ("float16", "mma"), ("float32", "mma_tf32")])
@pytest.mark.parametrize(
    ("channels", "kernel", "given"),
    [(3, (7, 7), {"stride": 2, "padding": 3}), (1, (2, 2, 3), {"padding": (0, 1, (-1, 4)), "stride": (1, 2, 3)}),
     (3, (4,), {"dilation": 2, "padding": [(1, 3)]})],
)  # fmt: skip
def test_lines_of_few_channels(
    channels: int, kernel: Any, given: Any, element: str, row: str, last: tuple[str, ...]
) -> None:
    """Windows' lines (tap, channel) are packed, for the result and for the filter's gradient."""
    given = {
        "shape": (2, channels, *(5, 8, 11)[-len(kernel) :]), "filter_shape": (24, channels, *kernel), **given,
        "element": element, "math_precision": "tf32" if row == "mma_tf32" else "element",
    }  # fmt: skip
    steps = run(bc.ConvPlan, bc.ConvDescriptor(**given), ("bias",), last, row)
    assert [s.kernel for s in steps] == ["pack_runs", "pack_runs", "wgmma" if row == "wgmma" else "mma"]
    run(BACKWARD, bc.ConvBackwardDescriptor(**given), ("dw",), last, row)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_depthwise_gradients_of_a_stride(element: str, stride: int, last: tuple[str, ...]) -> None:
    desc = bc.ConvBackwardDescriptor(
        shape=(2, 16, 7, 9), filter_shape=(16, 1, 3, 5), padding=((1, 1), (2, 1)), stride=stride, groups=16,
        element=element,
    )  # fmt: skip
    steps = run(BACKWARD, desc, ("dx", "dw", "dbias"), last, "simt")
    assert [s.kernel for s in steps if s.params.get("y") in ("dx", ("dx", 0))] == ["depthwise"]
    assert sum(s.kernel in ("depthwise", "direct") for s in steps) == stride**2
    assert all(s.params["taps"] == 0 for s in steps if s.kernel == "direct")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ("dy",), ()])
@pytest.mark.parametrize(
    ("kernel", "dilation", "element"),
    [((7, 7), 1, "bfloat16"), ((3, 5), 1, "float32"), ((3, 3), 2, "float16"), ((2, 4), 1, "float64"),
     ((5,), 1, "float16"), ((3, 1, 3), (1, 2, 1), "bfloat16")],
)  # fmt: skip
def test_depthwise_filters(kernel: Any, dilation: Any, element: str, last: tuple[str, ...]) -> None:
    """Taps of a line together where they are neighbours, partial chunks and lines that no thread has whole."""
    shape = (2, 24, *(9, 6, 13)[-len(kernel) :])
    desc = bc.ConvBackwardDescriptor(
        shape=shape, filter_shape=(24, 1, *kernel), padding=[(1, 2), (3, 3), (0, 1)][: len(kernel)], groups=24,
        dilation=dilation, element=element,
    )  # fmt: skip
    (pairs,) = (s for s in run(BACKWARD, desc, ("dw",), last, "simt") if s.kernel == "filter_pairs")
    wide = 8 // desc.element.itemsize
    assert pairs.axes["N"] == (wide if last == LAST else 1)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "transposed"),
    [(1, 3, 5, False), (3, 2, 4, False), (2, 1, 3, True), (12, 3, 1, False)],
)
def test_filters_of_few_channels(channels: int, outputs: int, groups: int, transposed: bool, last: Any) -> None:
    """Several outputs of a channel, transposed filters, one group of few outputs; spread and strided both."""
    pair = (groups * channels, outputs) if transposed else (groups * outputs, channels)
    desc = bc.ConvBackwardDescriptor(
        shape=(2, groups * channels, 6, 7), filter_shape=(*pair, 3, 2), padding=(1, (0, 2)), stride=(2, 1),
        input_dilation=(3, 2), groups=groups, transposed=transposed, element="float32", activation="relu",
    )  # fmt: skip
    run(BACKWARD, desc, ("dx", "dw", "dbias", "pre"), last, "simt")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ["mma", "wgmma"])
def test_one_output_of_a_transposed_filter(row: str) -> None:
    """Its outputs lie an element apart, and rows of a tile beyond the one are copied from nowhere."""
    desc = bc.ConvDescriptor(shape=(3, 16, 15), filter_shape=(16, 1, 1), padding=1, transposed=True, element="float16")
    run(bc.ConvPlan, desc, (), LAST, row)


@pytest.mark.usefixtures("emulation")
def test_many_splits_of_few_channels() -> None:
    """Each line of threads of the merge has several splits, and lanes add theirs as a tree."""
    for last in (LAST, ()):
        desc = bc.ConvBackwardDescriptor(
            shape=(3, 8, 41, 37), filter_shape=(8, 1, 3, 3), padding=1, groups=8, element="bfloat16"
        )
        steps = run(BACKWARD, desc, ("dw",), last, "simt")
        assert steps[0].params["lanes"] == (2 if last else 64) and steps[1].axes["LINES"] == (8 if last else 1)


@pytest.mark.usefixtures("emulation")
def test_outputs_that_see_nothing() -> None:
    """A filter of one tap, spread far: y is the bias there, launched once for all, or added to z."""
    for present in (("bias",), ("bias", "z")):
        desc = bc.ConvDescriptor(
            shape=(1, 2, 3, 2), filter_shape=(2, 1, 1, 1), input_dilation=(9, 8), padding=1, groups=2, element="float32"
        )
        steps = run(bc.ConvPlan, desc, present, (), "simt")
        assert len(steps) == (72 if "z" in present else 2)
