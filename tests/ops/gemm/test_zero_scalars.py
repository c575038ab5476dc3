"""alpha = 0 leaves a and b out, beta = 0 leaves c out, whatever stands in them: BLAS's rule, on every row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.ops.gemm.gemm import GemmDescriptor, GemmPlan
from baracuda_py.testing.places import call

ELEMENTS = ("float16", "bfloat16", "float32", "float64")
SIMT = PlanPreference(prefer_backend=BackendKind.BESPOKE)
BAD = (np.nan, np.inf, -np.inf)


def _operands(kind: ElementKind, out: ElementKind, bad: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {"a": rng.standard_normal((70, 40)), "b": rng.standard_normal((40, 66)), "c": rng.standard_normal((70, 66))}
    if bad:
        for i, x in enumerate(made.values()):
            x.flat[:: 7 + i] = np.resize(BAD, x.flat[:: 7 + i].shape)
    return {n: x.astype(out.dtype if n == "c" else kind.dtype) for n, x in made.items()}


@pytest.mark.parametrize("preference", [None, SIMT], ids=["any", "simt"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_zero_leaves_an_operand_out(place: str, name: str, preference: Any) -> None:
    """a and b full of NaN under alpha = 0, c under beta = 0; what is left is the answer of clean operands."""
    kind = ElementKind.of(name)
    for alpha, beta, out in itertools.product((0.0, 0.5), (0.0, 2.0), dict.fromkeys((kind, kind.acc))):
        desc = GemmDescriptor(m=70, n=66, k=40, element=kind, out_element=out)
        clean, bad = _operands(kind, out, False), _operands(kind, out, True)
        given = {n: (bad if (beta if n == "c" else alpha) == 0 else clean)[n] for n in ("a", "b", "c")}
        got = call(GemmPlan, desc, ("y",), place, preference, alpha=alpha, beta=beta, **given)["y"]
        a, b, c = (clean[n].astype(np.float64) for n in ("a", "b", "c"))
        eps = max(float(out.limits.eps), 2.0**-20 if kind.acc is ElementKind.F32 else 2.0**-48)
        np.testing.assert_allclose(got.astype(np.float64), alpha * (a @ b) + beta * c, rtol=eps, atol=8 * eps)


@pytest.mark.parametrize("name", ELEMENTS)
def test_other_scalars_let_them_through(place: str, name: str) -> None:
    kind = ElementKind.of(name)
    desc = GemmDescriptor(m=70, n=66, k=40, element=kind)
    bad = _operands(kind, kind, True)
    with np.errstate(invalid="ignore"):
        got = call(GemmPlan, desc, ("y",), place, alpha=0.5, beta=2.0, **bad)["y"].astype(np.float64)
        a, b, c = (bad[n].astype(np.float64) for n in ("a", "b", "c"))
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(a @ b + c))


@pytest.mark.gpu
@pytest.mark.parametrize("out", ["element", "acc"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_zero_on_the_device_leaves_an_operand_out(name: str, out: str) -> None:
    """The scalar is read when the kernel runs; cuBLAS, which multiplies by it, promises nothing there."""
    import cupy

    kind = ElementKind.of(name)
    to = kind.acc if out == "acc" else kind
    bad, clean = _operands(kind, to, True), _operands(kind, to, False)
    desc = GemmDescriptor(m=70, n=66, k=40, element=kind, out_element=to)
    scalars = [cupy.asarray(value, kind.acc.dtype) for value in (0.0, 2.0)]
    plan = GemmPlan.select(desc, SIMT)
    y = cupy.empty((70, 66), to.dtype)
    plan(a=cupy.asarray(bad["a"]), b=cupy.asarray(bad["b"]), c=cupy.asarray(clean["c"]), y=y,
         alpha=scalars[0], beta=scalars[1])  # fmt: skip
    np.testing.assert_array_equal(y.get().astype(np.float64), 2 * clean["c"].astype(np.float64))
