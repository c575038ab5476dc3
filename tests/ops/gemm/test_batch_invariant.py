"""A row of a product alone has the bits that it has in any batch, where `batch_invariant=True` is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

INVARIANT = bc.PlanPreference(batch_invariant=True)
ELEMENTS = ("float16", "bfloat16", "float32")  # the last in TF32
ROWS = {"float32": ("mma_tf32", "mma_split_tf32")}
MAJORS = [(True, True), (True, False), (False, True), (False, False)]


def operand(rng: np.random.Generator, rows: int, cols: int, columns_dense: bool, kind: ElementKind) -> np.ndarray:
    """Random numbers of many exponents, so that another order of sums has other bits; rows are 16-byte aligned."""
    shape = (rows, cols) if columns_dense else (cols, rows)
    pitch = -(-shape[1] // 8) * 8
    made = (rng.standard_normal((shape[0], pitch)) * 2.0 ** rng.integers(-4, 4, (shape[0], pitch))).astype(kind.dtype)
    return made[:, : shape[1]] if columns_dense else made[:, : shape[1]].T


def described(m: int, n: int, k: int, kind: ElementKind) -> bc.GemmDescriptor:
    precision = "tf32" if kind is ElementKind.F32 else "element"
    return bc.GemmDescriptor(m=m, n=n, k=k, element=kind, out_element=ElementKind.F32, math_precision=precision)


def emulated(desc: bc.GemmDescriptor, sms: int, **arrays: np.ndarray) -> tuple[np.ndarray, tuple[str, int]]:
    """y in float32, the row that made it and how many blocks, on an emulated device of so many multiprocessors."""
    y = np.full((desc.m, desc.n), np.nan, np.float32)
    with emulating():
        plan = bc.GemmPlan.select(desc, INVARIANT, device=emulated_device(8.0, sms))
        args = bc.GemmArgs(**{name: pointer_view(a) for name, a in (arrays | {"y": y}).items()})
        plan.run(args)
        row, geometry, _ = plan.plan_layout(args)
        return y, (row.name, geometry.steps[0].grid[0])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize(("a_rows", "b_rows"), MAJORS)
def test_a_row_alone_is_the_row_in_a_batch(a_rows: bool, b_rows: bool, name: str) -> None:
    """Tiles of both sizes, pieces of k in one block and in several, k that is no multiple of anything."""
    kind, rng = ElementKind.of(name), np.random.default_rng(3)
    m, n, k = 130, 72, 1083
    row, split = ROWS.get(name, ("mma", "mma_split"))
    a, b = operand(rng, m, k, a_rows, kind), operand(rng, k, n, b_rows, kind)

    def product(rows: slice, sms: int) -> tuple[np.ndarray, tuple[str, int]]:
        some = a[rows]
        return emulated(described(len(some), n, k, kind), sms, a=some, b=b)

    whole, launch = product(slice(None), 1)
    assert launch == (row, 2)  # tiles of 128 x 128, two pieces of k each
    tiled, launch = product(slice(None), 5)
    assert launch == (row, 6) and tiled.tobytes() == whole.tobytes()
    for first, last in ((9, 10), (37, 102)):
        some, launch = product(slice(first, last), 100)
        assert launch == (split, 4 * -(-(last - first) // 64)) and some.tobytes() == whole[first:last].tobytes()


@pytest.mark.usefixtures("emulation")
def test_the_place_in_memory_and_a_gate_change_no_bit() -> None:
    """Rows that are not aligned go another way into the same sums; a second product beside the first, too."""
    kind, rng = ElementKind.F16, np.random.default_rng(5)
    m, n, k = 70, 66, 101
    a, b = operand(rng, m, k, True, kind), operand(rng, k, n, True, kind)
    desc = described(m, n, k, kind)
    want, _ = emulated(desc, 100, a=a, b=b)
    shifted = np.zeros((m, k + 2), kind.dtype)[:, 1 : k + 1]
    shifted[...] = a
    assert emulated(desc, 100, a=shifted, b=np.ascontiguousarray(b.T).T)[0].tobytes() == want.tobytes()
    for sms in (1, 2):
        pre = np.full((m, n), np.nan, np.float32)
        emulated(desc, sms, a=a, b=b, up=b, pre=pre)
        assert pre.tobytes() == want.tobytes()


def test_only_rows_that_promise_it_are_taken() -> None:
    device = fake_device(9.0)
    desc = bc.GemmDescriptor(m=8, n=16, k=32, element="bfloat16")
    assert bc.GemmPlan.select(desc, device=device).sku.variant == "cublas"
    plan = bc.GemmPlan.select(desc, INVARIANT, device=device)
    assert plan.precision_guarantee.batch_invariant and plan.sku.backend.value == "bespoke"
    assert "not batch-invariant" in plan.explain()
    with pytest.raises(bc.UnsupportedError, match="not batch-invariant"):
        bc.GemmPlan.select(desc, bc.PlanPreference(batch_invariant=True, prefer_backend="cublas"), device=device)


@pytest.mark.gpu
@pytest.mark.parametrize("arch", [None, "sm80"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize(("a_rows", "b_rows"), MAJORS)
def test_every_batch_size_on_a_gpu(a_rows: bool, b_rows: bool, name: str, gated: bool, arch: Any) -> None:
    import cupy

    kind, rng = ElementKind.of(name), np.random.default_rng(7)
    preference = bc.PlanPreference(batch_invariant=True, max_arch=arch)
    m, n, k = 8192, 264, 1000
    a, b, up = (operand(rng, *s, kind) for s in ((m, k, a_rows), (k, n, b_rows), (k, n, b_rows)))

    def on_gpu(x: np.ndarray, rows: bool) -> Any:
        return cupy.asarray(x) if rows else cupy.asarray(np.ascontiguousarray(x.T)).T

    left, right = on_gpu(a, a_rows), on_gpu(b, b_rows)
    more = {"up": on_gpu(up, b_rows), "activation": "silu"} if gated else {}

    def product(some: Any) -> Any:
        precision = "tf32" if kind is ElementKind.F32 else "element"
        return bc.gemm(some, right, out_element="float32", math_precision=precision, preference=preference, **more)

    whole = product(left)
    for count in (1, 2, 7, 64, 100, 1000, 4097):
        first = int(rng.integers(0, m - count))
        assert bool((product(left[first : first + count]) == whole[first : first + count]).all()), (first, count)


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_rows_of_the_numpy_backend(element: str) -> None:
    rng, kind = np.random.default_rng(1), ElementKind.of(element)
    a, b = operand(rng, 67, 300, True, kind), operand(rng, 300, 40, False, kind)
    plan = bc.GemmPlan.select(bc.GemmDescriptor(m=67, n=40, k=300, element=kind), INVARIANT, device="cpu")
    assert plan.sku.variant == "numpy_apart" and plan.precision_guarantee.batch_invariant
    usual = bc.GemmPlan.select(plan.desc, device="cpu")
    assert usual.sku.variant == "numpy" and not usual.precision_guarantee.batch_invariant
    whole = bc.matmul(a, b, preference=INVARIANT)
    np.testing.assert_allclose(whole, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    for first, last in ((0, 1), (66, 67), (3, 5), (11, 60)):
        assert bc.matmul(a[first:last], b, preference=INVARIANT).tobytes() == whole[first:last].tobytes()
    groups = bc.grouped_gemm(a, np.stack([b, b]), np.array([20, 67]), preference=INVARIANT)
    assert groups.tobytes() == whole.tobytes()
