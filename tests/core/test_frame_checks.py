"""The frame passes the checks that ops pass, and the checks see what is broken: each mutation turns one of them red."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyPlan, UpdatePlan, axpy, update

from baracuda_py.backends import evaluation as backend
from baracuda_py.core import dispatch
from baracuda_py.core import plan as plan_module
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.core.plan import Plan
from baracuda_py.core.spec import Vjp
from baracuda_py.core.variant import Geometry, LibraryStep, Variant
from baracuda_py.jit import launch
from baracuda_py.testing import CHECKS, exercise, launches
from baracuda_py.testing import checks as c

PLANS = (AxpyPlan, UpdatePlan)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("check", CHECKS)
def test_toys_pass(plan: type[Plan], check: c.Check) -> None:
    exercise(plan, check, examples=20)


def variant_of(plan: type[Plan], **facts: Any) -> type[Plan]:
    """A changed plan, unregistered."""
    made = type(plan.__name__, (plan,), {**facts, "op": ""})
    made.op = plan.op
    plan_module.PLANS.pop(plan.__name__, None)
    if plan.__module__.startswith("baracuda_py."):
        plan_module.PLANS[plan.__name__] = plan
    return made


def red(plan: type[Plan], check: c.Check, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        exercise(plan, check, examples=0)


def late(function: Callable[..., Any], change: Callable[[Any], Any]) -> Any:
    def reference(desc: Any, **given: Any) -> Any:
        return change(dict(function(desc, **given)))

    return staticmethod(reference)


def test_a_reference_that_hard_codes_float64_is_seen() -> None:
    broken = late(axpy, lambda r: {**r, "y": np.asarray(r["y"], np.float64)})
    red(variant_of(AxpyPlan, reference=broken), c.check_dtypes, "float64, given float32")


def test_a_reference_that_changes_its_input_is_seen() -> None:
    def broken(desc: Any, *, params: Any, grads: Any, lr: Any) -> Any:
        for g in grads:
            g *= 2
        return update(desc, params=params, grads=grads, lr=lr)

    red(variant_of(UpdatePlan, reference=staticmethod(broken)), c.check_inputs_kept, "changes its input grads")


def test_a_forgotten_output_is_seen() -> None:
    broken = late(axpy, lambda r: {"y": r["y"]})
    red(variant_of(AxpyPlan, reference=broken), c.check_layouts, "returned no total")


@pytest.mark.parametrize(
    ("name", "broken", "check", "match"),
    [
        ("_store", lambda spec, desc, target, result: None, c.check_layouts, "differ"),
        ("Evaluation._evaluated", lambda *a, **more: {}, c.check_layouts, "y"),
    ],
)
def test_a_backend_that_does_not_write_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: Any, check: c.Check, match: str
) -> None:
    monkeypatch.setattr(f"{backend.__name__}.{name}", broken)
    with pytest.raises((AssertionError, KeyError), match=match):
        exercise(AxpyPlan, check, examples=0)


def test_a_backend_that_rounds_on_the_way_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = backend._store

    def broken(spec: Any, desc: Any, target: Any, result: Any) -> None:
        real(spec, desc, target, np.asarray(result, np.float16))

    monkeypatch.setattr(backend, "_store", broken)
    with pytest.raises(AssertionError, match="differ"):
        exercise(AxpyPlan, c.check_layouts, examples=20)


def test_a_backend_that_writes_between_elements_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = backend._store

    def broken(spec: Any, desc: Any, target: Any, result: Any) -> None:
        real(spec, desc, target, result)
        ctypes.c_ubyte.from_address(target.__array_interface__["data"][0] - 1).value ^= 1

    monkeypatch.setattr(backend, "_store", broken)
    with pytest.raises(AssertionError, match="outside the view"):
        exercise(AxpyPlan, c.check_layouts, examples=0)


def test_a_missing_overlap_check_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_check_overlap", lambda specs, views: None)
    with pytest.raises(AssertionError, match="overlaps"):
        exercise(AxpyPlan, c.check_errors, examples=20)


def test_a_missing_self_overlap_check_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_overlaps_itself", lambda view: False)
    red(AxpyPlan, c.check_errors, "overlapping itself")


def test_swapped_pointers_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = launch._filler
    monkeypatch.setattr(launch, "_filler", lambda params, picks, scalars: real(params, picks[::-1], scalars))
    with pytest.raises(AssertionError, match="field"):
        exercise(variant_of(AxpyPlan), c.check_launches, examples=20)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda s: dataclasses.replace(s, grid=(1, 70000, 1)), "outside the limits"),
        (lambda s: dataclasses.replace(s, grid=(0, 1, 1)), "outside the limits"),
        (lambda s: dataclasses.replace(s, block=256), "compiled for at most 128"),
        (lambda s: dataclasses.replace(s, axes={"VEC": 8}), "not an instance|VEC"),
        (lambda s: dataclasses.replace(s, params={**s.params, "scratch": 4096}), "workspace offset"),
    ],
)
def test_a_wrong_geometry_is_seen(change: Any, match: str) -> None:
    def broken(geometry: Any) -> Any:
        def changed(p: Any) -> Any:
            found = geometry(p)
            if isinstance(found, str):
                return found
            return Geometry(tuple(change(s) for s in found.steps), found.workspace, found.layout)

        return changed

    rows = tuple(dataclasses.replace(v, geometry=broken(v.geometry)) for v in AxpyPlan.variants)
    with pytest.raises(Exception, match=match):
        exercise(variant_of(AxpyPlan, variants=rows), c.check_launches, examples=20)


def test_a_table_that_takes_no_dense_operands_is_seen() -> None:
    rows = tuple(dataclasses.replace(v, geometry=lambda p: "no") for v in AxpyPlan.variants)
    with pytest.raises(UnsupportedError, match="no row takes this layout"):
        exercise(variant_of(AxpyPlan, variants=rows), c.check_devices, examples=0)


def test_a_run_that_does_less_than_can_implement_says_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AxpyPlan.run

    def broken(self: Plan, args: Any, workspace: Any = None, stream: Any = None) -> None:
        if args.bias is not None:
            raise UnsupportedError("bias")
        real(self, args)

    with pytest.raises(UnsupportedError, match="bias"):
        exercise(variant_of(AxpyPlan, run=broken), c.check_layouts, examples=20)


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class ScalePlan(AxpyPlan):
        vjp = Vjp("ScaleBackwardPlan", grads={"x": "y", "bias": "total"})

    right = variant_of(ScalePlan, vjp=None)
    exercise(right, c.check_gradients, examples=0)
    from baracuda_py.testing import gradients

    monkeypatch.setattr(gradients, "_gradients", lambda plan, twin, arrays, point, results, cotangents, names: {
        n: np.ones_like(point[n]) for n in names
    })  # fmt: skip
    monkeypatch.setattr(gradients, "backward_of", lambda plan: plan)
    monkeypatch.setattr(gradients, "backward_descriptor", lambda plan, desc: desc)
    monkeypatch.setattr(Vjp, "cotangents", lambda self, forward, backward: ["y"])
    with pytest.raises(AssertionError, match="differences"):
        exercise(variant_of(ScalePlan), c.check_gradients, examples=20)


def test_a_gradient_said_to_be_none_is_seen() -> None:
    from baracuda_py.ops.indexing.scatter import ScatterKind, ScatterPlan

    exercise(variant_of(ScatterPlan), c.check_gradients, examples=0, elements=(ElementKind.F64,))
    fewer = Vjp("ScatterBackwardPlan", grads={"x": "dx", "src": "dsrc"}, kinds=(ScatterKind.SET,))
    with pytest.raises(AssertionError, match="says that add has no gradient"):
        exercise(variant_of(ScatterPlan, vjp=fewer), c.check_gradients, examples=0)


def test_kernels_beside_a_library_are_checked() -> None:
    library = LibraryStep(lambda device: pytest.fail("a fake device has no libraries"))

    def mixed(row: Variant, **wrong: Any) -> Variant:
        def geometry(p: Any) -> Any:
            found = row.geometry(p)
            if isinstance(found, str):
                return found
            return dataclasses.replace(found, steps=(library, *(dataclasses.replace(s, **wrong) for s in found.steps)))

        return dataclasses.replace(row, geometry=geometry)

    for check in (c.check_launches, c.check_launch_errors):
        exercise(variant_of(AxpyPlan, variants=tuple(mixed(v) for v in AxpyPlan.variants)), check)
    broken = variant_of(AxpyPlan, variants=tuple(mixed(v, block=256) for v in AxpyPlan.variants))
    red(broken, c.check_launches, "compiled for at most 128")


def test_a_place_in_the_workspace_that_is_not_the_step_s_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = launches._wrong_fields

    def shifted(chosen: Any, params: Any, step: Any, *rest: Any) -> Any:
        held = step.params["held"]
        wrong = {**step.params, "held": "@null" if held != "@null" else "@workspace"}
        return found(chosen, params, dataclasses.replace(step, params=wrong), *rest)

    monkeypatch.setattr(launches, "_wrong_fields", shifted)
    red(AxpyPlan, c.check_launches, "field held")
