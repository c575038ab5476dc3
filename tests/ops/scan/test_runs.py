"""Rows that are runs of memory at any alignment: which launch takes them, its bits, and that no other byte changes."""

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.scan.diff import DiffDescriptor, DiffPlan
from baracuda_py.ops.scan.diff_backward import DiffBackwardDescriptor, DiffBackwardPlan
from baracuda_py.ops.scan.ediff1d import Ediff1dDescriptor, Ediff1dPlan
from baracuda_py.ops.scan.trapezoid import TrapezoidDescriptor, TrapezoidPlan
from baracuda_py.ops.scan.trapezoid_backward import TrapezoidBackwardPlan
from baracuda_py.testing.draw import Case, stored
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.recording import pointer_view

pytestmark = pytest.mark.usefixtures("emulation")
ELEMENTS = ("bfloat16", "float32", "float64", "uint8")


def values(shape: Any, element: str) -> np.ndarray:
    """Over many exponents, with zeros of both signs."""
    kind, rng = ElementKind(element), np.random.default_rng(7)
    if not kind.is_float:
        return rng.integers(0, 200, shape).astype(element)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))
    x[rng.random(shape) < 0.2] = -0.0
    return stored(x, kind)


def launched(plan: Any, desc: Any, wanted: Any, places: Any = None, **given: Any) -> tuple[list[str], Operands]:
    """Emulates a problem, and says which kernels it took."""
    absent = dict.fromkeys(name for name in ("x", "prepend", "append", "to_begin", "to_end") if name in _inputs(plan))
    ready = operands(Case(plan, desc, {**absent, **given}, frozenset(wanted)))
    for name, placement in (places or {}).items():
        held = ready.laid[name]
        ready.laid[name] = lay_out(np.array(held.view), placement, None if name not in wanted else 0xFF)
    chosen = plan.select(desc, PlanPreference(), device=emulated_device(9.0))
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    emulate(chosen, ready)
    return [step.kernel for step in geometry.steps], ready


def _inputs(plan: Any) -> set[str]:
    return set(plan.args.__dataclass_fields__)


def apart(offset: int, pad: int) -> Placement:
    """Rows with a gap, the first `offset` elements off alignment."""
    return Placement("padded", pads=(0, pad), offset=offset)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("offset", "pad"), [(0, 0), (1, 0), (0, 3), (3, 5)])
@pytest.mark.parametrize("cols", [64, 70, 129])
def test_differences_at_every_alignment(cols: int, offset: int, pad: int, element: str) -> None:
    x = values((9, cols), element)
    shape = {"shape": (9, cols), "element": element}
    kernels, ready = launched(DiffPlan, DiffDescriptor(**shape), ["y"], {"x": apart(offset, pad)}, x=x)
    assert kernels == ["runs" if cols - 1 >= 64 // x.itemsize else "strided"]
    acc = ElementKind(element).acc.dtype if ElementKind(element).is_float else x.dtype
    wide = np.asarray(cast(x, element) if x.dtype.kind == "V" else x).astype(acc)
    wanted = stored(wide[:, 1:] - wide[:, :-1], ElementKind(element))
    assert ready.laid["y"].view.tobytes() == wanted.tobytes()
    if not ElementKind(element).is_float:
        return
    dy = values((9, cols - 1), element)
    kernels, ready = launched(
        DiffBackwardPlan,
        DiffBackwardDescriptor(**shape),
        ["dx"],
        {"dy": apart(offset, pad), "dx": apart(pad, 1)},
        dy=dy,
    )
    assert kernels == ["runs"]
    ends = np.pad(dy.astype(acc), ((0, 0), (1, 1)))
    assert ready.laid["dx"].view.tobytes() == stored(ends[:, :-1] - ends[:, 1:], ElementKind(element)).tobytes()


def test_what_stands_before_a_row_moves_its_alignment() -> None:
    for begin in (1, 2, 9):
        desc = Ediff1dDescriptor(n=700, begin=begin, element="float16")
        x, first = values((700,), "float16"), values((begin,), "float16")
        kernels, _ = launched(Ediff1dPlan, desc, ["y"], x=x, to_begin=first)
        assert kernels[1:] == ["runs"]


@pytest.mark.parametrize("element", ELEMENTS[:3])
@pytest.mark.parametrize(("offset", "pad"), [(0, 0), (1, 0), (3, 5)])
@pytest.mark.parametrize("given", ["spacing", "line", "places"])
def test_gradients_of_trapezoids_are_one_launch_each(given: str, offset: int, pad: int, element: str) -> None:
    desc = TrapezoidDescriptor(shape=(5, 133), element=element)
    y, slopes = values((5, 133), element), values((5,), element)
    x = None if given == "spacing" else values((133,) if given == "line" else (5, 133), element)
    wanted = {"spacing": ["dy"], "line": ["dy"], "places": ["dy", "dx"]}[given]
    places = {name: apart(offset, pad) for name in ("y", *wanted)}
    kernels, _ = launched(TrapezoidBackwardPlan, desc, wanted, places, darea=slopes, y=y, x=x, spacing=-0.3)
    assert kernels == {"spacing": ["steps"], "line": ["sides"], "places": ["sides", "sides"]}[given]


@pytest.mark.parametrize("element", ELEMENTS[:3])
@pytest.mark.parametrize("cols", [9, 136, 4104])
def test_areas_of_aligned_rows_have_the_bits_of_others(cols: int, element: str) -> None:
    """Rows one element off alignment are read as two views."""
    desc = TrapezoidDescriptor(shape=(3, cols), element=element)
    y, areas, pad = values((3, cols), element), [], -cols % 8
    for offset, kernel in ((0, "run_rows"), (1, "rows_any")):
        kernels, ready = launched(TrapezoidPlan, desc, ["area"], {"y": apart(offset, pad)}, y=y, spacing=0.3)
        assert kernels[0] == kernel
        areas.append(ready.laid["area"].view.tobytes())
    assert areas[0] == areas[1]
