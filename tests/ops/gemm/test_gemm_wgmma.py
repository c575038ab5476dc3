"""The sm_90a row of `GemmPlan`, emulated: whichever axes are dense, tails, batches, epilogues, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View
from baracuda_py.core.variant import Problem
from baracuda_py.schedules import gemm_wgmma
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view, recording

OPTIONAL = ("c", "bias", "up", "up_bias", "row_bias", "scale_a", "scale_b", "residual", "pre", "up_pre")
FEW = 5  # multiprocessors: two clusters, several tiles for each


def problem(desc: bc.GemmDescriptor, *present: str, seed: int = 0, **placed: Placement) -> Operands:
    """Operands of which those named in `placed` are not dense, or not in the usual order."""
    case: Case = fill(bc.GemmPlan, desc, np.random.default_rng(seed), {name: name in present for name in OPTIONAL})
    laid: dict[str, Any] = {}
    for name in ("a", "b", "y", *OPTIONAL):
        array = case.arrays.get(name)
        if name in case.wanted:
            array = np.empty((*desc.batch_shape, desc.m, desc.n), desc.out_element.carrier)
        laid[name] = None
        if array is not None:
            laid[name] = lay_out(array, placed.get(name, Placement()), 0xFF if name in case.wanted else None)
    return Operands(case, laid)


def plan_for(desc: bc.GemmDescriptor, device: Any = None) -> Any:
    """The plan with no row but ours."""
    chosen = bc.GemmPlan(desc, PlanPreference(), device or emulated_device(9.0, FEW))
    chosen.rows = tuple(row for row in chosen.rows if row.name.startswith("wgmma"))
    return chosen


def turned(rank: int = 2, pad: int = 0) -> Placement:
    """The last axis but one is the dense one; `pad` elements between its lines."""
    order = (*range(rank - 2), rank - 1, rank - 2)
    pads = tuple(pad if axis == rank - 2 else 0 for axis in range(rank))
    return Placement("permuted", order=order, pads=pads)


def step_of(desc: bc.GemmDescriptor, ready: Operands) -> Any:
    """The launch that is chosen."""
    chosen = plan_for(desc)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    return geometry.steps[0]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("columns", [256, 128, 64])
@pytest.mark.parametrize(("a", "b", "y"), list(itertools.product((False, True), repeat=3)))
def test_any_axis_may_be_the_dense_one(a: bool, b: bool, y: bool, columns: int) -> None:
    m, n = {256: (456, 488), 128: (376, 120), 64: (88, 200)}[columns]
    desc = bc.GemmDescriptor(m=m, n=n, k=136, element="bfloat16" if a else "float16")
    places = {name: turned() for name, across in (("a", a), ("b", b), ("y", y)) if across}
    ready = problem(desc, **places)
    step = step_of(desc, ready)
    assert step.axes["COLUMNS"] == columns and step.params["plain"]
    assert (step.axes["A_ACROSS"], step.axes["B_ACROSS"]) == ((not b, a) if y else (a, not b))
    emulate(plan_for(desc), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "present",
    [("c",), ("bias", "residual", "pre"), ("row_bias", "scale_a", "scale_b"),
     ("up", "up_bias", "pre", "up_pre"), ("up", "c", "bias", "row_bias", "scale_a", "residual")],
)  # fmt: skip
@pytest.mark.parametrize("y", [False, True])
def test_epilogues(present: tuple[str, ...], out: str, y: bool) -> None:
    desc = bc.GemmDescriptor(m=150, n=140, k=72, activation="gelu", element="bfloat16", out_element=out)
    emulate(plan_for(desc), problem(desc, *present, b=turned(pad=8), **({"y": turned()} if y else {})))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("columns", "present"),
    [(256, ("bias",)), (256, ("bias", "row_bias")), (256, ("up", "up_bias")), (128, ("bias",)), (128, ("up", "bias")),
     (64, ("row_bias",)), (64, ())],
)  # fmt: skip
@pytest.mark.parametrize(
    ("activation", "bias"),
    [("none", Placement()), ("relu", Placement()), ("gelu", Placement("step", steps=(2,))),
     ("gelu_tanh", Placement("offset", offset=1)), ("silu", Placement())],
)  # fmt: skip
def test_an_epilogue_in_registers_gives_the_bits_of_one_by_rows(
    columns: int, present: tuple[str, ...], activation: str, bias: Placement
) -> None:
    m, n = {256: (456, 488), 128: (300, 56) if "up" in present else (376, 120), 64: (88, 200)}[columns]
    desc = bc.GemmDescriptor(m=m, n=n, k=24, activation=activation, element="bfloat16")
    vectors = {name: bias for name in ("bias", "up_bias", "row_bias") if name in present}
    places = {"b": turned(), "up": turned()} | vectors
    found = []
    for saved, plain in (((), 2), (("pre",), 0)):
        ready = problem(desc, *present, *saved, **places)
        step = step_of(desc, ready)
        assert step.axes["COLUMNS"] == columns and step.params["plain"] == (
            plain if present or activation != "none" or saved else 1
        )
        emulate(plan_for(desc), ready)
        found.append(np.array(ready.laid["y"].view))
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("k", [0, 1, 8, 64, 200, 520])
@pytest.mark.parametrize(("m", "n"), [(1, 8), (7, 136), (129, 8), (257, 520)])
def test_tails(m: int, n: int, k: int) -> None:
    desc = bc.GemmDescriptor(m=m, n=n, k=k, element="float16")
    pad = -k % 8
    padded = Placement("padded", order=(0, 1), pads=(0, pad))
    emulate(plan_for(desc), problem(desc, a=padded, b=turned(pad=pad)))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("m", [70, 200])
def test_few_columns_are_the_columns_of_tiles(m: int) -> None:
    desc = bc.GemmDescriptor(m=m, n=5, k=200, activation="silu", element="bfloat16")
    ready = problem(desc, "bias", "row_bias", "scale_a", "scale_b", "residual", "c", "pre", b=turned())
    step = step_of(desc, ready)
    assert step.axes["COLUMNS"] == 64 and step.params.get("a") != "b"
    emulate(plan_for(desc), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("m", "n", "k"), [(456, 488, 68), (120, 100, 36), (9, 200, 132), (130, 60, 0)])
@pytest.mark.parametrize("present", [(), ("bias", "up", "residual", "pre")])
def test_floats_as_tf32(m: int, n: int, k: int, present: tuple[str, ...]) -> None:
    desc = bc.GemmDescriptor(m=m, n=n, k=k, activation="relu", math_precision="tf32", element="float32")
    along = {name: turned() for name in ("b", "up")}
    emulate(plan_for(desc), problem(desc, *present, **along))
    if k:
        verdict = plan_for(desc, fake_device(9.0)).can_implement(problem(desc, *present).args(pointer_view))
        assert not verdict and "dense along no axis that can be read" in str(verdict.reason)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shared", ["", "a", "b", "both"])
def test_batches(shared: str) -> None:
    desc = bc.GemmDescriptor(batch_shape=(2, 3), m=72, n=48, k=80, element="bfloat16")
    one = Placement("broadcast", broadcast=(0, 1))
    ready = problem(desc)
    for name in ("a", "b"):
        if shared in (name, "both"):
            array = ready.case.arrays[name]
            array[...] = array[:1, :1]
            ready.laid[name] = lay_out(array, one)
    emulate(plan_for(desc), ready)


@pytest.mark.usefixtures("emulation")
def test_rows_have_the_bits_they_have_alone() -> None:
    desc = bc.GemmDescriptor(m=300, n=264, k=328, element="bfloat16")
    whole = problem(desc)
    emulate(plan_for(desc), whole)
    for row in (0, 17, 299):
        alone = bc.GemmDescriptor(m=1, n=264, k=328, element="bfloat16")
        ready = problem(alone)
        for name in ("a", "b"):
            part = whole.laid[name].view[row : row + 1] if name == "a" else whole.laid[name].view
            ready.case.arrays[name] = np.array(part)
            ready.laid[name] = lay_out(np.array(part), Placement())
        ready.case.arrays.update({s.name: whole.case.arrays[s.name] for s in scalars_of(bc.GemmPlan.args)})
        emulate(plan_for(alone), ready)
        assert (ready.laid["y"].view.view(np.uint16)[0] == whole.laid["y"].view.view(np.uint16)[row]).all()


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({"a": Placement("offset", offset=1)}, "does not start at a multiple of 16"),
        ({"a": Placement("padded", pads=(0, 1))}, "not all multiples of 16"),
        ({"b": Placement("step", steps=(1, 2))}, "dense along no axis"),
        ({"a": Placement("negative", flips=(True, False))}, "runs backwards"),
    ],
)
def test_what_the_copy_engine_does_not_reach_is_refused(places: dict[str, Placement], says: str) -> None:
    desc = bc.GemmDescriptor(m=64, n=64, k=64, element="bfloat16")
    verdict = plan_for(desc, fake_device(9.0)).can_implement(problem(desc, **places).args(pointer_view))
    assert not verdict and says in str(verdict.reason)


def test_y_in_any_strides_and_stores_by_the_copy_engine_where_they_can_be() -> None:
    desc = bc.GemmDescriptor(m=104, n=100, k=64, element="bfloat16")
    for place, plain in ((Placement(), False), (Placement("padded", pads=(0, 4)), True), (turned(), True)):
        with recording() as record:
            plan_for(desc, fake_device(9.0)).run(problem(desc, b=turned(), y=place).args(pointer_view))
        assert bool(record.launches[0].fields(gemm_wgmma.PARAMS)["plain"]) is plain


@pytest.mark.parametrize(("k", "taken"), [(1000, True), (1001, False)])
def test_a_row_alone_is_taken_where_its_batch_is(k: int, taken: bool) -> None:
    """Whatever its array says of the step to a next row, which it has not."""
    for m in (1, 2, 64, 200):
        desc = bc.GemmDescriptor(m=m, n=64, k=k, element="bfloat16")
        plan = bc.GemmPlan.select(desc, bc.PlanPreference(batch_invariant=True), device=fake_device(9.0))
        kind = ElementKind.BF16
        for step in (k, 0) if m == 1 else (k,):
            views: dict[str, Any] = dict.fromkeys(o.name for o in arrays_of(bc.GemmArgs))
            views |= {"a": View(0, (m, k), (step, 1), kind), "b": View(0, (k, 64), (64, 1), kind)}
            views["y"] = View(0, (m, 64), (64, 1), kind)
            problem = Problem(desc, plan.device, views)
            first = next(row.name for row in plan.rows if not isinstance(row.geometry(problem), str))
            assert (first == "wgmma") is taken
