"""Large products of operands in rows at odd addresses, emulated, and which row of `GemmPlan` takes what."""

from __future__ import annotations

from typing import Any

import pytest
from test_gemm_wgmma import plan_for, problem, turned

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import choose
from baracuda_py.core.tensor import View
from baracuda_py.core.tuned import ordered
from baracuda_py.core.variant import Problem
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

OTHERS = ("c", "residual", "pre", "up", "up_pre", "bias", "up_bias", "row_bias", "scale_a", "scale_b")


def copied(desc: bc.GemmDescriptor, ready: Operands, *names: str) -> None:
    """Emulates the problem on one multiprocessor, where small problems are large; `names` are copied."""
    plan = plan_for(desc, emulated_device(9.0, 1))
    row, geometry, _ = plan.plan_layout(ready.args(pointer_view))
    assert row.name == "wgmma_copied"
    assert [step.params["x"] for step in geometry.steps[:-1]] == list(names)
    emulate(plan, ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_rows_at_odd_addresses(a: bool, b: bool, element: str) -> None:
    desc = bc.GemmDescriptor(m=171, n=141, k=401, element=element)
    ready = problem(desc, **({"a": turned()} if a else {}), **({"b": turned()} if b else {}))
    copied(desc, ready, "a", "b")


@pytest.mark.usefixtures("emulation")
def test_only_what_cannot_be_read_is_copied() -> None:
    desc = bc.GemmDescriptor(m=176, n=144, k=400, element="float16")
    copied(desc, problem(desc, b=Placement("padded", pads=(0, 1))), "b")
    copied(desc, problem(desc, a=Placement("offset", offset=1)), "a")
    copied(desc, problem(desc, a=Placement("negative", flips=(True, False))), "a")


@pytest.mark.usefixtures("emulation")
def test_epilogues_and_gates() -> None:
    desc = bc.GemmDescriptor(m=121, n=141, k=601, activation="silu", element="bfloat16")
    copied(desc, problem(desc, "bias", "residual", "pre", "c"), "a", "b")
    copied(desc, problem(desc, "up", "up_bias", "residual", b=turned(), up=turned()), "a", "b", "up")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shared", ["", "a", "b"])
def test_batches(shared: str) -> None:
    desc = bc.GemmDescriptor(batch_shape=(2, 2), m=97, n=105, k=259, element="bfloat16")
    ready = problem(desc)
    if shared:
        array = ready.case.arrays[shared]
        array[...] = array[:1, :1]
        ready.laid[shared] = lay_out(array, Placement("broadcast", broadcast=(0, 1)))
    copied(desc, ready, "a", "b")


@pytest.mark.usefixtures("emulation")
def test_the_copy_has_the_bits_of_operands_that_are_read_where_they_are() -> None:
    desc = bc.GemmDescriptor(m=171, n=141, k=401, element="bfloat16", out_element="float32")
    odd = problem(desc)
    copied(desc, odd, "a", "b")
    even = problem(desc, a=Placement("padded", pads=(0, 7)), b=Placement("padded", pads=(0, 3)))
    emulate(plan_for(desc), even)
    assert odd.laid["y"].view.tobytes() == even.laid["y"].view.tobytes()


def taken(m: int, n: int, k: int, *present: str, **preference: Any) -> str:
    """The row that takes dense operands on an H100, a [m, k] and b [n, k]ᵀ."""
    desc = bc.GemmDescriptor(m=m, n=n, k=k, element="bfloat16")
    plan = bc.GemmPlan.select(desc, PlanPreference(**preference), device=fake_device(9.0))
    shapes = {"a": ((m, k), (k, 1)), "b": ((k, n), (1, k)), "y": ((m, n), (n, 1))}
    shapes |= {"residual": shapes["y"], "bias": ((n,), (1,))}
    views = {name: None for name in OTHERS if name not in present}
    views |= {name: View(0, *shapes[name], desc.element) for name in ("a", "b", "y", *present)}
    asked = Problem(desc, plan.device, views)
    return choose(ordered(plan, asked), asked, plan.preference)[0].name


@pytest.mark.parametrize(
    ("extents", "row"),
    [
        ((4095, 4097, 4093), "wgmma_copied"), ((4096, 4096, 4093), "wgmma_copied"), ((300, 301, 303), "cublas"),
        ((64, 8192, 8191), "cublas"), ((4096, 4096, 4096), "wgmma"), ((8192, 8192, 28672), "wgmma"),
        ((4096, 4096, 14336), "cublas"), ((8192, 28672, 4096), "cublas"), ((1, 4096, 4096), "cublas"),
        ((4096, 4096, 4092), "cublas"),
    ],
)  # fmt: skip
def test_the_row_that_measured_faster_is_taken(extents: tuple[int, int, int], row: str) -> None:
    assert taken(*extents) == row
    assert taken(*extents, prefer_backend="cublas") == "cublas"
    assert taken(*extents, "bias") == ("wgmma_copied" if row == "wgmma_copied" else "cublas_epilogue")


def test_a_wish_for_the_same_bits_in_every_batch_keeps_copies_out() -> None:
    assert taken(4095, 4097, 4093, batch_invariant=True) == "mma"
    assert taken(4095, 4097, 4093, "residual") == "wgmma_copied"
    assert taken(64, 4097, 4093, "residual") == "mma_split"
    assert {taken(m, 4096, 4096, batch_invariant=True) for m in (1, 64, 65, 4096)} == {"wgmma"}
