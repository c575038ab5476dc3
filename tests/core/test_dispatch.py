"""Dispatch: which row a device, a preference and a layout get, and what is said when none does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan

from baracuda_py.core import ArchSku, BackendKind, ElementKind, Geometry, Guarantee, PlanPreference, Step, Variant
from baracuda_py.core.device import CPU, Device, fake_device
from baracuda_py.core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from baracuda_py.core.plan import Plan
from baracuda_py.testing import pointer_view
from baracuda_py.testing.launches import CAPABILITIES

DESC = AxpyDescriptor(shape=(4, 8), element="float32")


def table(*rows: Variant) -> type[Plan]:
    made: type[Plan] = type("TablePlan", (AxpyPlan,), {"variants": rows, "op": ""})
    made.op = "test.table"
    return made


def row(name: str, *, smem: int = 0, workspace: int = 0, **facts: Any) -> Variant:
    step = Step("k", (1, 1, 1), {}, {}, 128, smem)
    return Variant(name, lambda p: Geometry((step,), workspace), source="toy.cu", **facts)


def taken(plan: type[Plan], device: Device, preference: PlanPreference | None = None) -> str:
    return plan.select(DESC, preference, device=device).sku.variant


def test_an_old_device_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"compute capability 7\.5; 8\.0 or newer"):
        AxpyPlan.select(DESC, device=fake_device(7.5))


@pytest.mark.parametrize(
    ("cc", "expected"), [(8.0, "sm80"), (8.6, "sm80"), (8.9, "sm89"), (9.0, "sm90a"), (10.0, "sm89"), (12.0, "sm89")]
)
def test_a_design_runs_where_it_can(cc: float, expected: str) -> None:
    plan = table(row("sm90a", design=ArchSku.SM90A), row("sm89", design=ArchSku.SM89), row("sm80"))
    assert taken(plan, fake_device(cc)) == expected


@pytest.mark.parametrize(("cc", "kilobytes"), list(zip(CAPABILITIES, (163, 99, 99, 227, 227, 99), strict=True)))
def test_shared_memory_is_checked_against_the_device(cc: float, kilobytes: int) -> None:
    plan = table(row("big", smem=kilobytes * 1024 + 1), row("fits", smem=kilobytes * 1024))
    chosen = plan.select(DESC, device=fake_device(cc))
    assert chosen.sku.variant == "fits"
    assert f"needs {kilobytes * 1024 + 1} bytes of shared memory" in chosen.explain()


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        (PlanPreference(), "steady"),
        (PlanPreference(deterministic=False), "atomic"),
        (PlanPreference(max_arch=ArchSku.SM80), "old"),
        (PlanPreference(max_workspace_bytes=100), "lean"),
        (PlanPreference(prefer_backend=BackendKind.CUBLAS), "library"),
        (PlanPreference(batch_invariant=True), "same"),
    ],
)
def test_preferences_choose(preference: PlanPreference, expected: str) -> None:
    plan = table(
        row("atomic", design=ArchSku.SM89, guarantee=Guarantee(deterministic=False)),
        row("steady", design=ArchSku.SM89, workspace=256),
        row("lean", design=ArchSku.SM89),
        row("library", design=ArchSku.SM89, backend=BackendKind.CUBLAS),
        row("old", workspace=256),
        row("same", design=ArchSku.SM89, guarantee=Guarantee(batch_invariant=True)),
    )
    assert taken(plan, fake_device(9.0), preference) == expected


@pytest.mark.parametrize(
    ("preference", "says"),
    [
        (PlanPreference(prefer_backend=BackendKind.CUBLAS), "backend cublas was asked for"),
        (PlanPreference(max_arch=ArchSku.SM80), "newer than max_arch"),
        (PlanPreference(), "not deterministic"),
        (PlanPreference(batch_invariant=True, deterministic=False), "not batch-invariant"),
    ],
)
def test_a_preference_that_cannot_be_met_is_an_error(preference: PlanPreference, says: str) -> None:
    plan = table(row("only", design=ArchSku.SM89, guarantee=Guarantee(deterministic=False)))
    with pytest.raises(UnsupportedError, match=says) as caught:
        plan.select(DESC, preference, device=fake_device(9.0))
    assert "only" in caught.value.table


def test_too_little_workspace_is_an_error_of_the_layout() -> None:
    chosen = table(row("hungry", workspace=512)).select(
        DESC, PlanPreference(max_workspace_bytes=511), device=fake_device(9.0)
    )
    with pytest.raises(UnsupportedError, match="needs 512 bytes of workspace, the preference allows 511"):
        _ = chosen.sku
    assert chosen.workspace_size() == 0


def test_a_backend_preference_never_leaves_the_device() -> None:
    with pytest.raises(UnsupportedError, match="does not run on cuda"):
        AxpyPlan.select(DESC, PlanPreference(prefer_backend=BackendKind.NUMPY), device=fake_device(9.0))
    with pytest.raises(UnsupportedError, match="backend bespoke was asked for"):
        AxpyPlan.select(DESC, PlanPreference(prefer_backend=BackendKind.BESPOKE), device=CPU)


def test_elements_that_no_row_serves_are_told() -> None:
    rows = tuple(dataclasses.replace(v, elements=(ElementKind.F64,)) for v in AxpyPlan.variants)
    with pytest.raises(UnsupportedError, match="not for float32"):
        table(*rows).select(DESC, device=fake_device(9.0))


def args(x: Any, y: Any, **more: Any) -> AxpyArgs:
    return AxpyArgs(x=pointer_view(x), y=pointer_view(y), **more)


def test_layouts_choose_rows() -> None:
    chosen = AxpyPlan.select(DESC, device=fake_device(9.0))
    memory = np.zeros((3, 4, 16), np.float32)
    dense, other = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    assert chosen.can_implement(args(dense, other)).sku.variant == "dense"  # type: ignore[union-attr]
    strided = chosen.can_implement(args(memory[0, :, ::2], other)).sku
    assert strided is not None and (strided.variant, strided.layout) == ("strided", "strided")
    shifted = np.zeros(33, np.float32)[1:].reshape(4, 8)
    assert chosen.can_implement(args(shifted, other)).sku.variant in ("dense", "strided")  # type: ignore[union-attr]


def test_no_row_for_a_layout_says_why_for_each() -> None:
    desc = AxpyDescriptor(shape=(2,) * 5, element="float32")
    chosen = AxpyPlan.select(desc, device=fake_device(9.0))
    x = np.zeros((2,) * 5, np.float32)
    verdict = chosen.can_implement(args(x.T, np.zeros_like(x)))
    assert not verdict and isinstance(verdict.error, UnsupportedError)
    assert "dense: an operand is not dense" in verdict.reason and "strided: more than 4 axes" in verdict.reason
    assert "x (2, 2, 2, 2, 2) strides (1, 2, 4, 8, 16)" in verdict.reason


MEMORY = np.zeros(256, np.float32)


@pytest.mark.parametrize(
    ("x", "y", "fine"),
    [
        (MEMORY[:32], MEMORY[:32], True),  # identical: the page allows it
        (MEMORY[:32], MEMORY[1:33], False),
        (MEMORY[1:33], MEMORY[:32], False),
        (MEMORY[:32], MEMORY[32:64], True),
        (MEMORY[:64:2], MEMORY[1:64:2], True),  # interleaved, nothing shared
        (MEMORY[:64:2], MEMORY[2:66:2], False),
        (MEMORY[:96:3], MEMORY[1:65:2], False),
        (MEMORY[31::-1], MEMORY[:32], False),
    ],
)
@pytest.mark.parametrize("device", [CPU, fake_device(9.0)])
def test_overlap(x: Any, y: Any, fine: bool, device: Device) -> None:
    chosen = AxpyPlan.select(AxpyDescriptor(shape=(32,), element="float32"), device=device)
    wrap = pointer_view if device.kind == "cuda" else (lambda a: a)
    verdict = chosen.can_implement(AxpyArgs(x=wrap(x), y=wrap(y)))
    assert bool(verdict) == fine, verdict.reason
    if not fine:
        assert isinstance(verdict.error, InvalidProblemError) and "y overlaps x" in verdict.reason


def test_extents_of_one_do_not_hide_an_identical_view() -> None:
    chosen = AxpyPlan.select(AxpyDescriptor(shape=(1, 4), element="float32"), device=CPU)
    x = np.ones((1, 4), np.float32)
    y = np.lib.stride_tricks.as_strided(x, (1, 4), (400, 4))
    assert chosen.can_implement(AxpyArgs(x=x, y=y))


def test_inputs_may_overlap_each_other() -> None:
    chosen = AxpyPlan.select(AxpyDescriptor(shape=(32,), element="float32"), device=CPU)
    assert chosen.can_implement(AxpyArgs(x=MEMORY[:32], bias=MEMORY[1:33], y=np.zeros(32, np.float32)))


def test_can_implement_never_raises() -> None:
    chosen = AxpyPlan.select(DESC, device=CPU)
    for wrong in (AxpyArgs(x=object(), y=3), None, 7, AxpyArgs(x=np.zeros(3), y=np.zeros(3, "U4"))):
        verdict = chosen.can_implement(wrong)  # type: ignore[arg-type]
        assert not verdict and isinstance(verdict.error, BaracudaError)
