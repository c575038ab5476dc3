"""Where a promise says that subnormal numbers are kept, they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.args import arrays_of
from baracuda_py.core.dispatch import fit, read_args
from baracuda_py.core.plan import Plan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.variant import Problem
from baracuda_py.testing import emulated_device
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.emulator import alone, emulating, ptx
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.recording import Function, pointer_view, recording

ANY_ORDER = PlanPreference(deterministic=False)
# PTX ISA, atom, red and cp.reduce.async.bulk: sums of float32 in global memory flush, those in shared memory do not.
FLUSHING = re.compile(r"\b(?:atom|red|cp\.reduce\.async)\.(?!\S*shared\.add)\S*add\.(?:v\d\.)?f32\b")
HEADS = {"batch_size": 1, "num_heads": 1, "query_len": 200, "key_len": 300, "d_k": 64, "d_v": 64}
ADDED = {"shape": (8, 8), "index_shape": (8, 4), "axis": 1, "kind": "add"}
CLASSES = {"batch_shape": (3,), "num_classes": 40}


def problem(plan: type[Plan], desc: Any, **given: np.ndarray) -> Operands:
    """Operands that are needed, all results; targets are class 7, and gradients of losses 1."""
    case = fill(
        plan, desc, np.random.default_rng(0), {s.name: s.role == "out" for s in arrays_of(plan.args)}, usual=True
    )
    case.arrays |= {name: stored(x, desc.element) for name, x in given.items()}
    for name, value in ("targets", 7), ("dloss", 1):
        if name in case.arrays:
            case.arrays[name] = np.full_like(case.arrays[name], value)
    plan.complete(desc, case.arrays)
    return operands(case)


def kernel_of(function: Function) -> str:
    return ptx(alone(function.unit, function.symbol), function.device.target)


@pytest.mark.parametrize(
    ("plan", "desc"),
    [
        *(
            (
                bc.ScatterPlan,
                bc.ScatterDescriptor(shape=(8, 8), index_shape=(8, 4), axis=1, kind="add", element=element),
            )
            for element in ("float32", "float64")
        ),
        (bc.FlashSdpaBackwardPlan, bc.FlashSdpaBackwardDescriptor(**HEADS, element="bfloat16")),
        (bc.FlashSdpaBackwardPlan, bc.FlashSdpaBackwardDescriptor(**HEADS | {"d_k": 256}, element="bfloat16")),
    ],
)
def test_sums_that_memory_adds_up(plan: type[Plan], desc: Any) -> None:
    """Rows flush if one of their kernels has an instruction that does."""
    chosen = plan(desc, ANY_ORDER, emulated_device(9.0))
    ready = problem(plan, desc)
    views = Problem(desc, chosen.device, read_args(plan, desc, chosen.device, ready.args(pointer_view)))
    rows = [row for row in chosen.rows if not isinstance(fit(row, views, ANY_ORDER), str)]
    assert len(rows) > 1
    for row in rows:
        own = plan(desc, ANY_ORDER, chosen.device)
        own.rows = (row,)
        with recording() as record:
            own.run(ready.args(pointer_view))
        flushes = any(FLUSHING.search(kernel_of(x.function)) for x in record.launches)
        assert flushes != own.sku.precision_guarantee.subnormals, row.name


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("plan", "fields", "x", "y"),
    [
        (bc.SoftmaxPlan, {"shape": (3, 40), "kind": "softmax"}, "x", "y"),
        (bc.MaskedSoftmaxPlan, {"shape": (3, 40)}, "x", "y"),
        (bc.CrossEntropyLossPlan, {**CLASSES, "reduction": "sum"}, "logits", "dlogits"),
        (bc.CrossEntropyLossBackwardPlan, {**CLASSES, "reduction": "sum"}, "logits", "dlogits"),
        (bc.CrossEntropyTermsBackwardPlan, {**CLASSES, "reduction": "sum", "kind": "classes"}, "logits", "dlogits"),
    ],
)
def test_shares_of_a_softmax(plan: type[Plan], fields: dict[str, Any], x: str, y: str, element: str) -> None:
    """A logit is so far above the others that their shares are subnormal numbers of the element."""
    desc = plan.descriptor(**fields, element=element)
    logits = np.where(np.arange(40) == 7, 0.0, -11.0 if element == "float16" else -89.0) + np.zeros((3, 1))
    ready = problem(plan, desc, **{x: logits})
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    with emulating():
        chosen.run(ready.args(pointer_view))
    (result,) = (one.view.view(desc.element.dtype) for spec, _, one in ready.items() if spec.name == y)
    shares = np.delete(result, 7, axis=1).astype(np.float64)
    assert (shares < 2.0**desc.element.limits.min_exponent).all()
    assert (shares > 0).all() == chosen.sku.precision_guarantee.subnormals
