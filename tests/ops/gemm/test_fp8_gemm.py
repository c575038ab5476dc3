"""Products of fp8: every row emulated, exact on small integers, scales of every kind, refusals, torch's calls."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import FP8, ElementKind
from baracuda_py.schedules.gemm_fp8 import OUTPUTS, blocks_of
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

OPTIONAL = ("scale_a", "scale_b", "c", "bias", "residual", "scale_y")
ROWS = {"wgmma": 9.0, "mma_fp8": 8.9, "mma": 8.0}  # and what they are emulated on
E4M3, E5M2 = FP8
EPILOGUES = (
    ("bias", "residual", "scale_a", "scale_b"), ("c", "scale_b"), (), ("bias", "residual", "scale_a"), ("c", "scale_b"),
)  # for each of OUTPUTS  # fmt: skip
FEW = 5  # multiprocessors: two clusters, several tiles for each
TURNED = Placement("permuted", order=(1, 0))  # the first axis is the dense one


def described(m: int, n: int, k: int, scales: str = "tensor", **more: Any) -> bc.Fp8GemmDescriptor:
    """A descriptor with scales of one kind."""
    depth, across = blocks_of(k), blocks_of(n)
    shapes = {"tensor": ((1, 1), (1, 1)), "rows": ((m, 1), (1, n)), "blocks": ((m, depth), (depth, across))}
    a, b = shapes[scales]
    return bc.Fp8GemmDescriptor(**({"m": m, "n": n, "k": k, "a_scales": a, "b_scales": b, "element": E4M3} | more))


def problem(desc: bc.Fp8GemmDescriptor, *present: str, seed: int = 0, **placed: Placement) -> Operands:
    """Operands, b with k along memory unless `placed` says otherwise."""
    given = {name: name in present for name in (*OPTIONAL, "amax")}
    return laid(fill(bc.Fp8GemmPlan, desc, np.random.default_rng(seed), given), **placed)


def laid(case: Case, **placed: Placement) -> Operands:
    places = {"b": TURNED} | placed
    found: dict[str, Any] = {}
    for name in ("a", "b", *OPTIONAL):
        array = case.arrays.get(name)
        found[name] = None if array is None else lay_out(array, places.get(name, Placement()))
    y = np.empty((case.desc.m, case.desc.n), case.desc.out_element.carrier)
    found["y"] = lay_out(y, places.get("y", Placement()), 0xFF)
    found["amax"] = lay_out(np.empty((), np.float32), Placement(), 0xFF) if "amax" in case.wanted else None
    return Operands(case, found)


def plan_for(desc: bc.Fp8GemmDescriptor, row: str = "wgmma", device: Any = None) -> Any:
    """The plan with one row."""
    chosen = bc.Fp8GemmPlan(desc, PlanPreference(), device or emulated_device(ROWS[row], FEW))
    chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    assert chosen.rows
    return chosen


SIZES = {(300, 264): (FEW, 128, 2), (100, 200): (3, 128, 1), (70, 104): (2, 64, 1)}  # multiprocessors, columns, cluster


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("m", "n"), SIZES)
@pytest.mark.parametrize(
    ("left", "right", "scales"),
    [(E4M3, E4M3, "tensor"), (E4M3, E5M2, "blocks"), (E5M2, E4M3, "rows"), (E5M2, E5M2, "blocks")],
)
def test_elements_tiles_and_scales(left: ElementKind, right: ElementKind, m: int, n: int, scales: str) -> None:
    desc = described(m, n, 272, scales, element=left, b_element=right)
    ready = problem(desc, "scale_a", "scale_b", "bias", seed=m)
    sms, columns, cluster = SIZES[m, n]
    chosen = plan_for(desc, device=emulated_device(9.0, sms))
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    step = geometry.steps[0]
    assert (step.axes["COLUMNS"], step.axes["CLUSTER"]) == (columns, cluster) and step.params["plain"]
    emulate(chosen, ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("m", "n", "size"), [(140, 136, 128), (100, 72, 64)])
@pytest.mark.parametrize(("left", "right"), [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E5M2)])
def test_tiles_without_a_warpgroup(left: ElementKind, right: ElementKind, m: int, n: int, size: int) -> None:
    """Of one element by the tensor cores' own product of fp8, and of any two by that of f16."""
    desc = described(m, n, 272, "blocks", element=left, b_element=right)
    ready = problem(desc, "scale_a", "scale_b", "bias", seed=m)
    for row in ("mma_fp8", "mma") if left is right else ("mma",):
        chosen = plan_for(desc, row, emulated_device(ROWS[row], 4))
        (step,) = chosen.plan_layout(ready.args(pointer_view))[1].steps
        assert step.kernel == f"fp8_gemm_{'native' if row == 'mma_fp8' else 'f16'}_{size}"
        emulate(chosen, ready)
    if left is not right:
        said = bc.Fp8GemmPlan.select(desc, device=fake_device(8.9)).explain()
        assert f"multiplies {left} by itself, b is {right}" in said


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("out", "k"), [(E4M3, 144), (ElementKind.F16, 0)])
def test_the_scale_of_y_and_the_largest_y_before_it(out: ElementKind, k: int, row: str) -> None:
    desc = described(70, 136, k, "rows", out_element=out, activation="relu")
    ready = problem(desc, "scale_a", "bias", "scale_y", "amax")
    ready.case.arrays["a"][3, 5:] = 0x7E  # 448, so that an fp8 y saturates
    ready.laid["a"] = lay_out(ready.case.arrays["a"], Placement())
    emulate(plan_for(desc, row), ready)
    amax = float(ready.laid["amax"].view)
    assert amax > 448 or k < 100
    if k and row != "wgmma":
        ready.case.arrays["a"][69, 0] = 0x7F
        ready.laid["a"] = lay_out(ready.case.arrays["a"], Placement())
        emulate(plan_for(desc, row), ready)
        assert np.isnan(ready.laid["amax"].view)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ["mma_fp8", "mma"])
@pytest.mark.parametrize(("m", "n"), [(0, 16), (16, 0)])
def test_the_largest_of_nothing_is_0(m: int, n: int, row: str) -> None:
    ready = problem(described(m, n, 32), "amax")
    emulate(plan_for(ready.case.desc, row), ready)
    assert float(ready.laid["amax"].view) == 0.0


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("out", "present"), [*zip(OUTPUTS, EPILOGUES, strict=True)])
def test_outputs_and_epilogues(present: tuple[str, ...], out: ElementKind, row: str) -> None:
    right = E4M3 if row == "mma_fp8" else E5M2
    desc = described(70, 140, 144, "blocks", out_element=out, activation="silu", b_element=right)
    emulate(plan_for(desc, row), problem(desc, *present))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 0), (1, 8, 144), (1, 8, 528), (131, 72, 0), (131, 72, 272)])
def test_tails(m: int, n: int, k: int, row: str) -> None:
    desc = described(m, n, k, "blocks", out_element=ElementKind.F16)
    emulate(plan_for(desc, row), problem(desc, "scale_a", "scale_b"))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ROWS)
def test_strides(row: str) -> None:
    desc = described(70, 136, 272, "blocks")
    padded = Placement("padded", order=(0, 1), pads=(0, 16))
    steps = Placement("step", steps=(1, 2))
    places = {"a": padded, "b": Placement("padded", order=(1, 0), pads=(16, 0)), "scale_a": TURNED, "scale_b": steps}
    for y in (TURNED, Placement("padded", order=(0, 1), pads=(0, 8))):
        emulate(plan_for(desc, row), problem(desc, "scale_a", "scale_b", "bias", y=y, **places))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("row", "left", "right"),
    [
        ("wgmma", E4M3, E4M3), ("wgmma", E4M3, E5M2), ("wgmma", E5M2, E5M2), ("mma_fp8", E4M3, E4M3),
        ("mma_fp8", E5M2, E5M2), ("mma", E4M3, E5M2), ("mma", E5M2, E4M3),
    ],
)  # fmt: skip
def test_exact_on_small_integers(left: ElementKind, right: ElementKind, row: str) -> None:
    desc = described(70, 150, 288, "blocks", element=left, b_element=right, out_element=ElementKind.F32)
    case = fill(
        bc.Fp8GemmPlan,
        desc,
        np.random.default_rng(1),
        {name: name in ("scale_a", "scale_b") for name in (*OPTIONAL, "amax")},
    )
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, case.arrays[name].shape) for name in ("a", "b"))
    case.arrays["a"], case.arrays["b"] = a.astype(left.dtype).view(np.uint8), b.astype(right.dtype).view(np.uint8)
    scales = [2.0 ** rng.integers(-2, 3, case.arrays[name].shape) for name in ("scale_a", "scale_b")]
    case.arrays["scale_a"], case.arrays["scale_b"] = (s.astype(np.float32) for s in scales)
    ready = laid(case)
    emulate(plan_for(desc, row), ready)
    left_scales = np.repeat(scales[0], 128, 1)[:, :288]
    right_scales = np.repeat(np.repeat(scales[1], 128, 0)[:288], 128, 1)[:, :150]
    assert (ready.laid["y"].view == (a * left_scales) @ (b * right_scales)).all()


@pytest.mark.usefixtures("emulation")
def test_rows_have_the_bits_they_have_alone() -> None:
    """And in tiles of every width, and whether y is stored by TMA or not."""
    k, n = 272, 264
    whole = problem(described(300, n, k, "rows"), "scale_a", "scale_b", "bias")
    emulate(plan_for(whole.case.desc), whole)
    bits = np.array(whole.laid["y"].view).view(np.uint16)
    for row in (0, 17, 299):
        desc = described(1, n, k, "rows")
        arrays = dict(whole.case.arrays)
        arrays |= {name: np.array(arrays[name][row : row + 1]) for name in ("a", "scale_a")}
        case = Case(bc.Fp8GemmPlan, desc, arrays, frozenset({"y"}))
        for sms, y in ((FEW, Placement()), (132, Placement()), (FEW, TURNED)):
            ready = laid(case, y=y)
            emulate(plan_for(desc, device=emulated_device(9.0, sms)), ready)
            assert (np.array(ready.laid["y"].view).view(np.uint16)[0] == bits[row]).all()


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({"a": Placement("padded", pads=(0, 8))}, "not all multiples of 16"),
        ({"b": Placement()}, "dense along no axis that can be read; it must have k along memory"),
        ({"a": Placement("negative", flips=(True, False))}, "runs backwards"),
    ],
)
def test_what_the_copy_engine_does_not_reach_is_another_row_s(places: dict[str, Placement], says: str) -> None:
    desc = described(64, 64, 64)
    ready = problem(desc, **places)
    verdict = plan_for(desc, device=fake_device(9.0)).can_implement(ready.args(pointer_view))
    assert not verdict and says in str(verdict.reason)
    taken = bc.Fp8GemmPlan.select(desc, device=fake_device(9.0)).can_implement(ready.args(pointer_view))
    assert taken and taken.sku is not None and taken.sku.variant == "mma_fp8"


@pytest.mark.parametrize(
    ("scales", "out", "row"),
    [("tensor", E4M3, "cublas"), ("rows", ElementKind.BF16, "cublas"), ("rows", E4M3, "wgmma")],
)
def test_scales_of_rows_and_an_fp8_result_are_not_cublas_s(scales: str, out: ElementKind, row: str) -> None:
    ready = problem(described(64, 64, 64, scales, out_element=out), "scale_a", "scale_b")
    taken = bc.Fp8GemmPlan.select(ready.case.desc, device=fake_device(9.0)).can_implement(ready.args(pointer_view))
    assert taken and taken.sku is not None and taken.sku.variant == row


def test_scales_of_other_shapes_are_refused() -> None:
    for name, shape in (("a_scales", (1, 300)), ("a_scales", (64, 2)), ("b_scales", (3, 200)), ("b_scales", (2, 1))):
        with pytest.raises(bc.InvalidProblemError, match=f"{name} must be .* or .*, got "):
            described(300, 200, 300, **{name: shape})


def fp8(values: Any, dtype: Any = ml_dtypes.float8_e4m3fn) -> Any:
    return np.asarray(values, np.float32).astype(dtype)


def test_scaled_mm_takes_scales_of_every_shape() -> None:
    rng = np.random.default_rng(0)
    a, b = fp8(rng.standard_normal((5, 260))), fp8(rng.standard_normal((260, 130)), ml_dtypes.float8_e5m2)
    wide = [x.astype(np.float64) for x in (a, b)]
    one, rows, cols = np.float32(0.5), rng.random(5, np.float32), rng.random(130, np.float32)
    for left, right in (
        (one, np.full(1, one)),
        (rows, cols),
        (rows[:, None], cols[None]),
        (np.full((1, 1), one), cols),
    ):
        want = (wide[0] * np.reshape(left, (-1, 1))) @ (wide[1] * right)
        got = bc.scaled_mm(a, b, np.asarray(left), right, out_element="float32")
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    blocks = rng.random((5, 3), np.float32), rng.random((3, 2), np.float32)
    spread = np.repeat(blocks[0], 128, 1)[:, :260], np.repeat(np.repeat(blocks[1], 128, 0)[:260], 128, 1)[:, :130]
    got = bc.scaled_mm(a, b, *blocks, out_element="float32")
    np.testing.assert_allclose(got, (wide[0] * spread[0]) @ (wide[1] * spread[1]), rtol=1e-5, atol=1e-5)
    carried = a.view(np.uint8), b.view(np.uint8)
    same = bc.scaled_mm(*carried, *blocks, out_element="float32", element="float8_e4m3fn", b_element="float8_e5m2")
    assert (same == got).all()


def test_an_fp8_result_saturates_and_keeps_nan() -> None:
    a, b = fp8([[448, 448], [np.nan, 1], [-448, -1]]), fp8([[2, 0.5], [0, 0]])
    y = bc.scaled_mm(a, b, out_element="float8_e4m3fn").view(a.dtype).astype(np.float32)
    np.testing.assert_array_equal(y, [[448, 224], [np.nan, np.nan], [-448, -224]])


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e4m3fn"])
def test_torch(out: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    a, w = (torch.randn(s, 64).to(torch.float8_e4m3fn) for s in (48, 32))
    scales = torch.tensor(0.5), torch.tensor(2.0)
    want = torch._scaled_mm(a, w.t(), *scales, out_dtype=getattr(torch, out))
    got = bc.scaled_mm(a, w.t(), *scales, out_element=out)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got.float(), want.float(), rtol=0.13 if out[5] == "8" else 1e-2, atol=1e-2)
