"""Where promises say the same, bits are the same: of rows, of layouts, and whatever else is wanted beside a result."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import registry
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import Device, fake_device
from baracuda_py.core.dispatch import fit, read_args
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.core.tensor import TensorRef, dense_strides
from baracuda_py.core.variant import Problem, Variant
from baracuda_py.testing import emulated_device
from baracuda_py.testing.draw import SeededDraw, fill, shapes_of
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.recording import pointer_view

E = ElementKind
OURS = PlanPreference(prefer_backend=BackendKind.BESPOKE)
CLASSES = {"batch_shape": 2, "num_classes": 9000, "element": "float32"}
SCORED = bc.attention("softcap(s, 5.0)").plan()
HEADS = {"batch_size": 1, "num_heads": 1, "query_len": 70, "key_len": 300, "d_k": 64, "d_v": 64, "element": "bfloat16"}


def alike(plan: Plan, ready: Operands) -> list[list[Variant]]:
    """The rows that take these operands, by what they promise; only where several promise the same."""
    views = read_args(type(plan), plan.desc, plan.device, ready.args(pointer_view))
    problem, found = Problem(plan.desc, plan.device, views), {}
    for row in plan.rows:
        geometry = fit(row, problem, plan.preference)
        if isinstance(geometry, str):
            continue
        promise = row.guarantee.of(plan.desc.element, plan.kind)
        if promise.bit_stable_on_same_hardware:
            found.setdefault(replace(promise, order=geometry.order or promise.order), []).append(row)
    return [rows for rows in found.values() if len(rows) > 1]


def bits(plan: Plan, row: Variant, ready: Operands) -> dict[str, bytes]:
    """What a row writes on the emulator, by a plan of its own, as plans remember the row of a layout."""
    own = type(plan)(plan.desc, plan.preference, plan.device)
    own.rows = (row,)
    for _, _, one in ready.items():
        one.buffer[:] = one.before
    with emulating():
        own.run(ready.args(pointer_view))
    return {f"{spec.name}[{i}]": one.view.tobytes() for spec, i, one in ready.items() if spec.writes}


def differing(plan: Plan, ready: Operands) -> list[tuple[str, str, str]]:
    """Rows that promise the same, and results whose bits they disagree about."""
    wrong = []
    for first, *others in alike(plan, ready):
        wanted = bits(plan, first, ready)
        for row in others:
            got = bits(plan, row, ready)
            wrong += [(first.name, row.name, name) for name in wanted if got[name] != wanted[name]]
    return wrong


def dense(plan: type[Plan], desc: Any, device: Device, seed: int = 0) -> tuple[Plan, Operands]:
    given = {spec.name: spec.role == "out" for spec in arrays_of(plan.args)}
    case = fill(plan, desc, np.random.default_rng(seed), given, smooth=True, kind=getattr(desc, "kind", None))
    return plan(desc, OURS, device), operands(case)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("plan", "desc", "smem"),
    [
        (bc.FlashSdpaPlan, bc.FlashSdpaDescriptor(**HEADS), None),
        (bc.FlashSdpaBackwardPlan, bc.FlashSdpaBackwardDescriptor(**HEADS), None),
        # Tiles of other keys, from this head_dim on.
        (SCORED, SCORED.descriptor(**{**HEADS, "query_len": 40, "d_k": 96, "d_v": 96}), None),
        (bc.HadamardPlan, bc.HadamardDescriptor(shape=(1, 16384), block=16384, element="float32"), None),
        # So little shared memory that no block holds a row.
        (bc.CrossEntropyLossPlan, bc.CrossEntropyLossDescriptor(**CLASSES), 20000),
    ],
)  # fmt: skip
def test_rows_of_several_designs(plan: type[Plan], desc: Any, smem: int | None) -> None:
    """More than one takes the problem; those of other tiles promise bits of their own."""
    device = emulated_device(9.0)
    chosen, ready = dense(plan, desc, device if smem is None else replace(device, smem=smem))
    views = read_args(plan, desc, chosen.device, ready.args(pointer_view))
    taken = [r for r in chosen.rows if not isinstance(fit(r, Problem(desc, chosen.device, views), OURS), str)]
    assert len(taken) > 1
    assert not differing(chosen, ready)


OF_PRODUCTS = ("gemm.gemm_backward", "loss.linear_")  # ask rows of `GemmPlan`, which is tested itself
LARGER = {  # than what is drawn
    "GemmPlan": bc.GemmDescriptor(m=8, n=8, k=1100, math_precision="tf32", element="float32"),
    "ChannelNormBackwardPlan": bc.ChannelNormBackwardDescriptor(
        over="group", batch=3, channels=4, num_groups=2, spatial=(1000,), element="float32"
    ),
}
SHARED = [
    name
    for name, plan in registry.plans().items()
    if not plan.op.startswith(OF_PRODUCTS)
    and any(
        a.guarantee.of(E.F32, kind) == b.guarantee.of(E.F32, kind) and a.guarantee.bit_stable
        for kind in plan.kinds or (None,)
        for a, b in itertools.combinations([v for v in plan.variants if v.backend is BackendKind.BESPOKE], 2)
        if a.serves(kind, E.F32) and b.serves(kind, E.F32)
    )
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", SHARED)
def test_rows_that_promise_the_same(name: str) -> None:
    """The first of some drawn problems of float32 that two of them take, or one that is named."""
    plan = registry.plans()[name]
    for seed in range(60):
        desc = LARGER.get(name) or plan.case(SeededDraw(seed, E.F32, drawn_kind(plan, seed)))
        if elements(plan, desc) > 50_000:
            continue
        chosen, ready = dense(plan, desc, emulated_device(9.0, 3), seed)
        if alike(chosen, ready):
            assert not differing(chosen, ready), desc
            return
    raise AssertionError("no problem that two rows take")


def elements(plan: type[Plan], desc: Any) -> int:
    """Of all operands."""
    shapes = [shape for spec in arrays_of(plan.args) if spec.serves(desc) for shape in shapes_of(spec, desc)]
    return sum(map(math.prod, shapes))


def drawn_kind(plan: type[Plan], seed: int) -> Any:
    kinds = tuple(plan.kinds or (None,))
    return kinds[seed % len(kinds)]


def promised(plan: type[Plan], desc: Any, wanted: set[str]) -> Any:
    """The promise of a call with dense operands that need no memory, of which only `wanted` outputs are given."""
    given: dict[str, Any] = {}
    needed = {spec.needs for spec in arrays_of(plan.args) if spec.name in wanted}
    for i, spec in enumerate(arrays_of(plan.args), 1):
        if spec.name in wanted | needed or (spec.reads and not spec.optional):
            (shape,) = shapes_of(spec, desc)
            given[spec.name] = TensorRef(i << 40, shape, dense_strides(shape), spec.elements(desc)[0])
    sku = plan.select(desc, OURS, device=fake_device(9.0)).can_implement(plan.args(**given)).sku
    assert sku is not None
    return sku.precision_guarantee


def test_what_is_wanted_beside_a_sum() -> None:
    """Cross entropy adds up other rows in a block beside dlogits; dbias is of other chunks beside dweight; so are the
    weights of queries beside those of keys."""
    plan, fields = bc.CrossEntropyLossPlan, {"batch_shape": 1 << 18, "num_classes": 7, "element": "float64"}
    both, alone = {"loss", "dlogits"}, {"loss"}
    summed, rows = (bc.CrossEntropyLossDescriptor(**fields, reduction=r) for r in ("sum", "none"))
    assert promised(plan, summed, both) != promised(plan, summed, alone)
    assert promised(plan, rows, both) == promised(plan, rows, alone)
    few = replace(summed, batch_shape=(1 << 10,))
    assert promised(plan, few, both) == promised(plan, few, alone)
    heads = bc.QkNormRopeBackwardPlan
    shape = {"batch_size": 2, "num_heads": 32, "num_kv_heads": 8, "seq_len": 4096, "head_dim": 128, "rotary_dim": 128}
    turned = bc.QkNormRopeBackwardDescriptor(**shape, table_shape=(4096, 64), element="bfloat16")
    assert promised(heads, turned, {"dq_weight", "dk_weight"}) != promised(heads, turned, {"dq_weight"})
    assert promised(heads, turned, {"dq", "dk"}) == promised(heads, turned, {"dq"})
    linear = bc.LinearCrossEntropyBackwardPlan
    desc = bc.LinearCrossEntropyDescriptor(rows=8192, num_classes=32000, hidden=4096, element="bfloat16")
    assert promised(linear, desc, {"dbias", "dweight"}) != promised(linear, desc, {"dbias"})
    assert promised(linear, desc, {"dx", "dweight"}) == promised(linear, desc, {"dx"})
    assert promised(linear, replace(desc, chunk=1024), {"dbias"}) == promised(
        linear, replace(desc, chunk=1024), {"dbias", "dweight"}
    )


@pytest.mark.usefixtures("emulation")
def test_what_is_wanted_beside_a_logprob() -> None:
    """The largest alone is certain: its logprob has the sign of zero that it has among others."""
    plan, desc = bc.SamplingPlan, bc.SamplingDescriptor(batch_size=2, vocab_size=37, element="float32")
    chosen = plan(desc, OURS, emulated_device(9.0))
    (row,) = (row for row in chosen.rows if row.backend is BackendKind.BESPOKE)
    found = []
    for wanted in ({"logprob"}, {"logprob", "masked"}):
        given = {spec.name: spec.name in wanted for spec in arrays_of(plan.args)}
        case = fill(plan, desc, np.random.default_rng(0), given)
        case.arrays["temperature"] = 0.0
        found.append(bits(chosen, row, operands(case))["logprob[0]"])
    assert found[0] == found[1]
