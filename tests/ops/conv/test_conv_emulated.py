"""Convolutions on the emulator: layouts, tiles, spread inputs, groups, splits of the filter's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

SHAPED = {"x": "shape", "dx": "shape", "w": "filter_shape", "dw": "filter_shape"}


def problem(plan: Any, desc: Any, present: tuple[str, ...], last: tuple[str, ...]) -> Operands:
    """Operands that are there, those in `last` with channels last."""
    optional = ("bias", "z", "pre", "dx", "dw", "dbias")
    case = fill(plan, desc, np.random.default_rng(0), {name: name in present for name in optional})
    laid: dict[str, Any] = {}
    for name in ("x", "w", "bias", "z", "y", "pre", "dy", "dx", "dw", "dbias"):
        array = case.arrays.get(name)
        if name in case.wanted:
            shape = (desc.out_channels,) if name == "dbias" else getattr(desc, SHAPED.get(name, "out_shape"))
            array = np.empty(shape, desc.element.carrier)
        if array is None:
            continue
        placement = Placement()
        if name in last:
            channel = 1 if name in ("w", "dw") else array.ndim - len(desc.kernel_size) - 1
            order = [axis for axis in range(array.ndim) if axis != channel]
            placement = Placement("permuted", order=(*order, channel))
        laid[name] = lay_out(array, placement, 0xFF if name in case.wanted else None)
    return Operands(case, {name: laid.get(name) for name in case.plan.args.__dataclass_fields__ if name in SHAPED or
                           name in ("bias", "z", "y", "pre", "dy", "dbias")})  # fmt: skip


def run(plan: Any, desc: Any, present: tuple[str, ...], last: tuple[str, ...], row: str, sms: int = 132) -> list[Any]:
    """Emulates it in a row, and gives the launches."""
    ready = problem(plan, desc, present, last)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0, sms))
    chosen.rows = tuple(r for r in chosen.rows if r.name == row)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    emulate(chosen, ready)
    return list(geometry.steps)


LAST = ("x", "w", "z", "y", "pre", "dy", "dx", "dw")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize("row", ["mma", "wgmma"])
@pytest.mark.parametrize(("channels", "groups"), [(8, 1), (5, 1), (24, 2)])
def test_tensor_cores(channels: int, groups: int, row: str, last: tuple[str, ...]) -> None:
    desc = bc.ConvDescriptor(
        shape=(2, channels * groups, 9, 7), filter_shape=(11 * groups, channels, 3, 2), padding=(1, (0, 2)),
        stride=(2, 1), dilation=(1, 2), groups=groups, activation="silu", element="bfloat16",
    )  # fmt: skip
    steps = run(bc.ConvPlan, desc, ("bias", "z", "pre"), last, row)
    packs = [s for s in steps if s.kernel == "pack"]
    assert len(packs) == (0 if last and channels % 8 == 0 else 2)
    assert steps[-1].axes == {"SIZE" if row == "mma" else "COLS": 64, "BLOCKS": False}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize(("row", "axis"), [("mma", "SIZE"), ("wgmma", "COLS")])
def test_large_tiles_of_many_outputs(row: str, axis: str, last: tuple[str, ...]) -> None:
    desc = bc.ConvDescriptor(shape=(1, 16, 13, 11), filter_shape=(137, 16, 3, 1), padding=1, element="float16")
    assert run(bc.ConvPlan, desc, (), last, row, 2)[-1].axes[axis] == 128


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("element", "row"), [("bfloat16", "wgmma"), ("bfloat16", "mma"), ("float32", "mma_tf32"), ("float32", "simt")]
)
def test_spread_and_cut_in_three_axes(element: str, row: str, transposed: bool) -> None:
    desc = bc.ConvDescriptor(
        shape=(2, 12, 3, 4, 5), filter_shape=(12, 9, 2, 1, 3) if transposed else (9, 12, 2, 1, 3),
        input_dilation=(2, 1, 3), padding=((1, 0), (-1, 2), (2, 3)), stride=(1, 2, 2), transposed=transposed,
        element=element, math_precision="tf32" if row == "mma_tf32" else "element",
    )  # fmt: skip
    run(bc.ConvPlan, desc, ("bias",), LAST, row)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ("x", "dy"), ()])
@pytest.mark.parametrize(("element", "row"), [("bfloat16", "wgmma"), ("bfloat16", "mma"), ("float32", "simt")])
def test_gradients(element: str, row: str, last: tuple[str, ...]) -> None:
    desc = bc.ConvBackwardDescriptor(
        shape=(2, 16, 9, 7), filter_shape=(24, 8, 3, 2), padding=1, stride=(2, 1), groups=2, element=element,
        activation="relu",
    )  # fmt: skip
    run(bc.ConvBackwardPlan, desc, ("pre", "dx", "dw", "dbias"), last, row)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ["wgmma", "mma", "simt"])
def test_splits_of_the_filters_gradient(row: str) -> None:
    """Several splits of rows, the last one partial, and large tiles where there are many outputs."""
    desc = bc.ConvBackwardDescriptor(shape=(3, 8, 431), filter_shape=(140, 8, 9), element="float16", padding=4)
    steps = run(bc.ConvBackwardPlan, desc, ("dw", "dbias"), LAST, row)
    merges = [s for s in steps if s.kernel == "merge"]
    assert [s.params["splits"] for s in merges] == [2, 5]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("last", [LAST, ()])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (5, 1, 1), (7, 1, 1), (3, 2, 1), (2, 1, 2)])
def test_depthwise(kernel: int, stride: int, dilation: int, last: tuple[str, ...]) -> None:
    given = {
        "shape": (2, 16, 6, 10), "filter_shape": (16, 1, 3, kernel), "padding": (1, kernel // 2), "stride": stride,
        "dilation": dilation, "groups": 16, "element": "bfloat16",
    }  # fmt: skip
    steps = run(bc.ConvPlan, bc.ConvDescriptor(**given), ("bias", "z", "pre"), last, "simt")
    wanted = {"N": 4 if last else 1, "K": kernel if stride == dilation == 1 else 0}
    assert steps[-1].kernel == "depthwise" and steps[-1].axes == wanted
    run(bc.ConvBackwardPlan, bc.ConvBackwardDescriptor(**given), ("dx", "dw", "dbias"), last, "simt")


@pytest.mark.usefixtures("emulation")
def test_transposed_filters_of_few_channels() -> None:
    given = {"shape": (2, 6, 5, 4), "filter_shape": (6, 2, 3, 2), "input_dilation": 2, "transposed": True, "groups": 3}
    run(bc.ConvPlan, bc.ConvDescriptor(**given, element="float64"), ("bias",), (), "simt")
    run(bc.ConvBackwardPlan, bc.ConvBackwardDescriptor(**given, element="float64"), ("dx", "dw"), (), "simt")
