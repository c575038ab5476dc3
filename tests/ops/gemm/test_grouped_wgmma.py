"""The sm_90a rows of products of groups, emulated: groups of any rows, tails, layouts, epilogues, and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import fake_device
from baracuda_py.testing.draw import Case, fill, shapes_of
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

FEW = 5  # multiprocessors: several tiles for each
OFFSETS = {  # of four groups of 300 rows
    "of no multiple": [37, 37, 170, 300],
    "one row each": [1, 2, 3, 4],
    "all in the last": [0, 0, 0, 300],
    "rows of no group": [130, 140, 268, 270, 299],
    "no group has rows": [300, 300, 300, 300, 300],
    "decreasing": [200, 100, 400, 250],
}
OPTIONAL = ("bias", "up", "up_bias", "scale_a", "residual", "pre", "up_pre")
GRADIENTS = ("da", "db", "dbias")
DOWN = Placement("permuted", order=(1, 0))
TURNED = Placement("permuted", order=(0, 2, 1))


def problem(plan: Any, desc: Any, offsets: Any, *present: str, **placed: Placement) -> Operands:
    """Operands of which those named in `placed` are not dense, or not in the usual order."""
    case: Case = fill(
        plan, desc, np.random.default_rng(0), {name: name in (present or GRADIENTS) for name in (*OPTIONAL, *GRADIENTS)}
    )
    case.arrays["offsets"] = np.array(offsets, case.arrays["offsets"].dtype)
    laid: dict[str, Any] = dict.fromkeys(spec.name for spec in arrays_of(plan.args))
    for spec in arrays_of(plan.args):
        if (name := spec.name) not in case.wanted:
            continue
        kept = np.empty(shapes_of(spec, desc)[0], desc.element.carrier)
        laid[name] = lay_out(kept, placed.get(name, Placement()), 0xFF)
    for name, array in case.arrays.items():
        if array is not None and name not in case.wanted:
            laid[name] = lay_out(array, placed.get(name, Placement()))
    return Operands(case, laid)


def plan_for(desc: Any, plan: Any = bc.GroupedGemmPlan, device: Any = None) -> Any:
    """The plan with no row but ours."""
    chosen = plan(desc, PlanPreference(), device or emulated_device(9.0, FEW))
    chosen.rows = tuple(row for row in chosen.rows if row.name == "wgmma")
    return chosen


def step_of(plan: Any, ready: Operands) -> Any:
    """The launch that is chosen."""
    _, geometry, _ = plan.plan_layout(ready.args(pointer_view))
    return geometry.steps[0]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("n", [264, 520])
def test_groups_of_any_rows(offsets: str, turned: bool, n: int) -> None:
    bounds = OFFSETS[offsets]
    desc = bc.GroupedGemmDescriptor(
        total=300, groups=4, n=n, k=136, num_offsets=len(bounds), element="float16" if turned else "bfloat16"
    )
    ready = problem(bc.GroupedGemmPlan, desc, bounds, **({"b": TURNED} if turned else {}))
    step = step_of(plan_for(desc), ready)
    assert step.axes["B_ACROSS"] is not turned and step.params["plain"]
    emulate(plan_for(desc), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("offsets", ["of no multiple", "rows of no group"])
@pytest.mark.parametrize("y", [False, True])
@pytest.mark.parametrize(
    "present", [("bias",), ("residual", "scale_a", "pre"), ("up", "up_bias", "bias", "scale_a", "residual", "up_pre")]
)
def test_epilogues(present: tuple[str, ...], y: bool, offsets: str) -> None:
    bounds = OFFSETS[offsets]
    desc = bc.GroupedGemmEpilogueDescriptor(
        total=300, groups=4, n=140, k=72, num_offsets=len(bounds), activation="gelu", element="bfloat16"
    )
    placed = {name: TURNED for name in ("b", "up") if name == "b" or name in present}
    placed |= {"y": DOWN} if y else {}
    emulate(
        plan_for(desc, bc.GroupedGemmEpiloguePlan),
        problem(bc.GroupedGemmEpiloguePlan, desc, bounds, *present, **placed),
    )


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("n", "columns"), [(1096, 256), (640, 128)])
@pytest.mark.parametrize("k", [0, 8, 64, 520])
def test_tails_and_widths_of_tiles(n: int, columns: int, k: int) -> None:
    desc = bc.GroupedGemmDescriptor(total=130, groups=1, n=n, k=k, element="float16")
    ready = problem(bc.GroupedGemmPlan, desc, [129])
    assert step_of(plan_for(desc), ready).axes["COLUMNS"] == columns
    emulate(plan_for(desc), ready)


@pytest.mark.usefixtures("emulation")
def test_more_groups_than_a_warp_looks_at_together() -> None:
    groups, total = 700, 90
    ends = np.sort(np.random.default_rng(0).integers(0, total, groups))
    desc = bc.GroupedGemmDescriptor(total=total, groups=groups, n=8, k=8, element="bfloat16")
    emulate(plan_for(desc), problem(bc.GroupedGemmPlan, desc, ends))


@pytest.mark.usefixtures("emulation")
def test_nothing_comes_in_from_rows_of_no_group() -> None:
    """Rows beside a group share its tiles and slices: infinities there reach nothing."""
    bounds, rng = [70, 90, 230], np.random.default_rng(0)
    whole = bc.GroupedGemmDescriptor(total=300, groups=2, n=64, k=72, num_offsets=3, element="float16")
    inner = bc.GroupedInnerGemmDescriptor(total=300, groups=2, n=64, m=72, num_offsets=3, element="float16")
    rows = {name: rng.standard_normal((300, n)).astype("float16") for name, n in (("a", 72), ("b", 64))}
    for array in rows.values():
        array[:70], array[230:] = np.inf, np.nan
    ready = problem(bc.GroupedGemmPlan, whole, bounds)
    ready.case.arrays["a"], ready.laid["a"] = rows["a"], lay_out(rows["a"], Placement())
    emulate(plan_for(whole), ready)
    assert not ready.laid["y"].view[:70].any() and not ready.laid["y"].view[230:].any()
    ready = problem(bc.GroupedInnerGemmPlan, inner, bounds)
    for name, array, placed in (("a", rows["a"].T, DOWN), ("b", rows["b"], Placement())):
        ready.case.arrays[name], ready.laid[name] = array, lay_out(array, placed)
    emulate(plan_for(inner, bc.GroupedInnerGemmPlan), ready)
    assert np.isfinite(ready.laid["y"].view.astype(float)).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize(("m", "n", "columns"), [(136, 264, 128), (264, 1032, 256)])
def test_sums_over_the_rows_of_groups(offsets: str, m: int, n: int, columns: int) -> None:
    bounds = OFFSETS[offsets]
    desc = bc.GroupedInnerGemmDescriptor(
        total=300, groups=4, m=m, n=n, num_offsets=len(bounds), element="float16" if n == 264 else "bfloat16"
    )
    ready = problem(bc.GroupedInnerGemmPlan, desc, bounds, a=DOWN)
    assert step_of(plan_for(desc, bc.GroupedInnerGemmPlan), ready).axes["COLUMNS"] == columns
    emulate(plan_for(desc, bc.GroupedInnerGemmPlan), ready)


@pytest.mark.usefixtures("emulation")
def test_a_group_has_the_same_sums_alone() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((300, n)).astype("float16") for n in (72, 136))

    def product(begin: int, end: int, ends: list[int]) -> Any:
        facts = {"total": end - begin, "groups": len(ends), "m": 72, "n": 136, "element": "float16"}
        desc = bc.GroupedInnerGemmDescriptor(**facts)
        ready = problem(bc.GroupedInnerGemmPlan, desc, ends)
        for name, array, placed in (("a", a[begin:end].T, DOWN), ("b", b[begin:end], Placement())):
            ready.case.arrays[name], ready.laid[name] = array, lay_out(array, placed)
        emulate(plan_for(desc, bc.GroupedInnerGemmPlan), ready)
        return ready.laid["y"].view

    whole = product(0, 300, [13, 241, 300])
    assert product(13, 241, [228])[0].tobytes() == whole[1].tobytes()
    assert product(241, 300, [59])[0].tobytes() == whole[2].tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("offsets", ["of no multiple", "rows of no group"])
def test_sums_of_a_result_across_memory_are_those_of_its_transpose(offsets: str) -> None:
    """What training asks for: gradients of weights that are kept transposed."""
    bounds, made = OFFSETS[offsets], {}
    facts = {"total": 300, "groups": 4, "m": 136, "n": 264, "num_offsets": len(bounds), "element": "float16"}
    desc = bc.GroupedInnerGemmDescriptor(**facts)
    for name, y in (("rows", Placement()), ("columns", TURNED)):
        ready = problem(bc.GroupedInnerGemmPlan, desc, bounds, a=DOWN, y=y)
        emulate(plan_for(desc, bc.GroupedInnerGemmPlan), ready)
        made[name] = ready.laid["y"].view.copy()
    assert made["rows"].tobytes() == made["columns"].tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("turned", [(), ("b",), ("db",), ("b", "db")])
def test_gradients(turned: tuple[str, ...]) -> None:
    desc = bc.GroupedGemmBackwardDescriptor(total=300, groups=4, n=136, k=72, element="bfloat16")
    bounds = OFFSETS["of no multiple"]
    ready = problem(bc.GroupedGemmBackwardPlan, desc, bounds, **dict.fromkeys(turned, TURNED))
    assert set(ready.case.wanted) == {"da", "db", "dbias"}
    emulate(plan_for(desc, bc.GroupedGemmBackwardPlan), ready)


@pytest.mark.usefixtures("emulation")
def test_a_row_has_the_same_bits_in_any_group() -> None:
    rng = np.random.default_rng(0)
    rows, matrices = rng.standard_normal((150, 200)).astype("float16"), rng.standard_normal((2, 200, 72))

    def product(a: Any, ends: list[int]) -> Any:
        desc = bc.GroupedGemmDescriptor(total=len(a), groups=2, n=72, k=200, element="float16")
        ready = problem(bc.GroupedGemmPlan, desc, ends)
        for name, array in (("a", a), ("b", matrices.astype("float16"))):
            ready.case.arrays[name], ready.laid[name] = array, lay_out(array, Placement())
        emulate(plan_for(desc), ready)
        return ready.laid["y"].view

    whole = product(rows, [130, 150])
    assert product(rows[77:78], [1, 1]).tobytes() == whole[77:78].tobytes()
    assert product(rows[100:150], [30, 50]).tobytes() == whole[100:].tobytes()
    assert product(rows[129:], [1, 21]).tobytes() == whole[129:].tobytes()


def test_what_it_does_not_take_is_named() -> None:
    device = fake_device(9.0)
    odd = bc.GroupedGemmDescriptor(total=300, groups=4, n=72, k=67, element="float16")
    verdict = plan_for(odd, device=device).can_implement(
        problem(bc.GroupedGemmPlan, odd, [1, 2, 3, 4]).args(pointer_view)
    )
    assert not verdict and "not all multiples of 16" in str(verdict.reason)
    across = bc.GroupedGemmDescriptor(total=304, groups=4, n=72, k=64, element="float16")
    ready = problem(bc.GroupedGemmPlan, across, [1, 2, 3, 4], a=DOWN)
    verdict = plan_for(across, device=device).can_implement(ready.args(pointer_view))
    assert not verdict and "needs rows of a along memory" in str(verdict.reason)
