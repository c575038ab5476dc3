"""Products of int8 by experts: exact sums, results rounded once, any offsets and strides, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

PLACES = ("numpy", "emulated")


def whole(*shape: int) -> Any:
    """Integers over the whole range."""
    return np.random.default_rng(len(shape)).integers(-128, 128, shape, dtype=np.int8)


def slices(offsets: Any, total: int, experts: int) -> list[slice]:
    """The rows of each expert, as the page says what offsets mean."""
    bounds = np.maximum.accumulate(np.clip(np.asarray(offsets, np.int64), 0, total)).tolist()
    bounds = bounds if len(bounds) > experts else [0, *bounds]
    return [slice(bounds[e], bounds[e + 1]) for e in range(experts)]


def run(
    place: str, request: pytest.FixtureRequest, kind: str, out: str, given: dict[str, Any], compute: float = 8.0
) -> tuple[Any, str]:  # fmt: skip
    """y, and the row of the table that made it; on one emulated multiprocessor, where blocks walk several tiles."""
    total, (experts, n, k) = len(given["x"]), given["weight"].shape
    y = np.full((total, n), 77, ElementKind.of(out).dtype)
    desc = bc.GroupedIntGemmDescriptor(
        kind=kind, total=total, experts=experts, n=n, k=k, num_offsets=len(given["offsets"]), out_element=out,
        element="int8",
    )  # fmt: skip
    if place == "numpy":
        plan = bc.GroupedIntGemmPlan.select(desc, device="cpu")
        plan(**given, y=y)
        return y, plan.sku.variant
    request.getfixturevalue("emulation")
    with emulating():
        plan = bc.GroupedIntGemmPlan.select(desc, device=emulated_device(compute, 1))
        args = plan.args(**{name: pointer_view(a) for name, a in {**given, "y": y}.items()})
        plan.run(args)
        return y, plan.plan_layout(args)[0].name


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("shape", "offsets", "row"),
    [
        ((40, 3, 9, 272), [5, 22, 37], "few"), ((40, 3, 9, 67), [5, 5, 40], "mma"), ((150, 2, 70, 144), [3, 69], "mma"),
        ((300, 2, 264, 48), [1, 140, 290], "mma"), ((5, 2, 3, 0), [2, 4], "mma"),
        ((9, 3, 5, 16), [7, 2, 1000], "few"), ((9, 2, 5, 16), [-5, 2**40], "few"),
    ],
)  # fmt: skip
def test_sums_are_exact(
    place: str, shape: tuple[int, ...], offsets: list[int], row: str, request: pytest.FixtureRequest
) -> None:
    """Of tiles of every size and few rows; experts of no row, rows of no expert, offsets out of order."""
    total, experts, n, k = shape
    x, weight = whole(total, k), whole(experts, n, k)
    want = np.zeros((total, n), np.int64)
    for e, rows in enumerate(slices(offsets, total, experts)):
        want[rows] = x[rows].astype(np.int64) @ weight[e].T.astype(np.int64)
    given = {"x": x, "weight": weight, "offsets": np.array(offsets)}
    y, name = run(place, request, "sums", "int32", given)
    assert np.array_equal(y, want) and name == ("numpy" if place == "numpy" else row)


@pytest.mark.parametrize(
    ("shape", "offsets", "kind"),
    [
        ((150, 2, 70, 144), [3, 69], "sums"), ((300, 2, 264, 272), [1, 140, 290], "scaled"),
        ((40, 2, 9, 0), [30, 35], "scaled"), ((130, 3, 260, 16), [130, 2, 1000], "sums"),
    ],
)  # fmt: skip
def test_warpgroups_give_the_bits_of_tiles(
    shape: tuple[int, ...], offsets: list[int], kind: str, request: pytest.FixtureRequest
) -> None:
    """Groups that end within tiles and within a warp's rows, rows of no expert, k of nothing."""
    total, experts, n, k = shape
    given = {"x": whole(total, k), "weight": whole(experts, n, k), "offsets": np.array(offsets)}
    out = "int32" if kind == "sums" else "bfloat16"
    if kind == "scaled":
        given["scales"] = np.exp(np.random.default_rng(3).standard_normal((experts, n))).astype(np.float32)
        given["bias"] = np.arange(experts * n).reshape(experts, n).astype(ElementKind.BF16.dtype)
    (want, mma), (y, wgmma) = (run("emulated", request, kind, out, given, compute) for compute in (8.0, 9.0))
    assert y.tobytes() == want.tobytes() and (mma, wgmma) == ("mma", "wgmma")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("total", [20, 90])
def test_scaled_results_are_rounded_once(place: str, out: str, total: int, request: pytest.FixtureRequest) -> None:
    rng, experts, n, k = np.random.default_rng(2), 2, 21, 80
    x, weight, offsets = whole(total, k), whole(experts, n, k), np.array([2, 11, total - 1], np.int32)
    x_scales, scales = (np.exp(rng.standard_normal(s)).astype(np.float32) for s in (total, (experts, n)))
    bias = (100 * rng.standard_normal((experts, n))).astype(ElementKind.of(out).dtype)
    want = np.zeros((total, n), np.longdouble)
    for e, rows in enumerate(slices(offsets, total, experts)):
        sums = (x[rows].astype(np.int64) @ weight[e].T.astype(np.int64)).astype(np.longdouble)
        want[rows] = sums * x_scales[rows, None] * scales[e] + bias[e].astype(np.longdouble)
    given = {
        "x": x, "weight": weight, "offsets": offsets, "x_scales": x_scales, "scales": scales, "bias": bias
    }  # fmt: skip
    y, name = run(place, request, "scaled", out, given)
    assert y.tobytes() == cast(want, out).tobytes()
    assert name == {("numpy", 20): "numpy", ("numpy", 90): "numpy", ("emulated", 20): "few"}.get((place, total), "mma")


@pytest.mark.parametrize("place", PLACES)
def test_views_and_numbers_for_all(place: str, request: pytest.FixtureRequest) -> None:
    """Weights that are a view of [k, n], columns of x apart, and scales that are one number, or one for each expert."""
    x, weight = whole(12, 34)[:, ::2], whole(2, 17, 6).swapaxes(1, 2)
    scales, one = np.array([[0.5], [4.0]], np.float32), np.array(0.25, np.float32)
    given = {"x": x, "weight": weight, "offsets": np.array([7, 12]), "x_scales": one, "scales": scales}
    y, _ = run(place, request, "scaled", "float32", given)
    for e, rows in enumerate((slice(0, 7), slice(7, 12))):
        want = x[rows].astype(np.float64) @ weight[e].T.astype(np.float64) * (0.25 * scales[e])
        assert np.array_equal(y[rows], want)


@pytest.mark.parametrize("place", PLACES)
def test_scaled_sums_do_not_wrap(place: str, request: pytest.FixtureRequest) -> None:
    k = 131_073
    x, weight = np.full((1, k), -128, np.int8), np.full((1, 1, k), -128, np.int8)
    given = {"x": x, "weight": weight, "offsets": np.array([1]), "x_scales": np.array(0.5, np.float32)}
    y, name = run(place, request, "scaled", "float32", given)
    assert y[0, 0] == np.float32(k * 8192) and name == ("numpy" if place == "numpy" else "mma_long")
    assert bc.grouped_int_gemm(x, weight, np.array([1]))[0, 0] == k * 16384 - 2**32


def test_what_is_given_says_what_is_made() -> None:
    x, weight, offsets = whole(6, 8), whole(2, 3, 8), np.array([2, 5])
    assert bc.grouped_int_gemm(x, weight, offsets).dtype == np.int32
    ones = np.ones(6, np.float32)
    assert bc.grouped_int_gemm(x, weight, offsets, ones).dtype == np.float32
    y = bc.grouped_int_gemm(x, weight, offsets, ones, out_element="bfloat16")
    assert y.dtype == ElementKind.BF16.dtype and not y[5].any()
    want = bc.int_mm(x[:2], weight[0].T)
    assert np.array_equal(bc.grouped_int_gemm(x, weight, offsets)[:2], want)
    assert bc.grouped_int_gemm(x[:0], weight, np.zeros(2, np.int32)).shape == (0, 3)
    assert not bc.grouped_int_gemm(x, weight[:0], np.zeros(0, np.int64)).any()


def test_rows_by_tokens_of_an_expert() -> None:
    for total, compute, name in ((128, 9.0, "few"), (129, 9.0, "wgmma"), (129, 8.6, "mma")):
        desc = bc.GroupedIntGemmDescriptor(kind="scaled", total=total, experts=8, n=64, k=64, element="int8")
        assert bc.GroupedIntGemmPlan.select(desc, device=fake_device(compute)).sku.variant == name


@pytest.mark.parametrize(("capability", "size"), [(8.0, 128), (8.6, 64), (9.0, 128)])
def test_a_tile_and_the_table_of_offsets_fit_the_shared_memory(capability: float, size: int) -> None:
    desc = bc.GroupedIntGemmDescriptor(kind="scaled", total=4096, experts=8, n=4096, k=64, element="int8")
    device = fake_device(capability)
    row = next(row for row in bc.GroupedIntGemmPlan.variants if row.name == "mma")
    (step,) = row.geometry(dense_problem(bc.GroupedIntGemmPlan, desc, device)).steps
    assert step.kernel.endswith(str(size)) and step.smem + 2 * 257 * 8 <= device.smem


GOOD: dict[str, Any] = {
    "x": np.zeros((5, 8), np.int8), "weight": np.zeros((2, 3, 8), np.int8), "offsets": np.array([2, 4]),
    "x_scales": np.ones(5, np.float32), "scales": np.ones((2, 3), np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offsets": np.array([2.0, 4.0])}, "offsets.*int32"),
        ({"offsets": np.array([1, 2, 3, 4])}, r"offsets must have 2 items.*or 3.*got 4"),
        ({"weight": np.zeros((2, 3, 7), np.int8)}, "weight"),
        ({"weight": np.zeros((3, 8), np.int8)}, "weight"),
        ({"weight": np.zeros((2, 3, 8), np.uint8)}, "weight"),
        ({"x": np.zeros((5, 8), np.float32)}, "float32"),
        ({"x_scales": np.ones(4, np.float32)}, "x_scales must broadcast"),
        ({"scales": np.ones((2, 4), np.float32)}, "scales must broadcast"),
        ({"scales": np.ones((2, 3))}, "scales"),
        ({"bias": np.ones(3, np.float32)}, "bias"),
        ({"out_element": "int32"}, "out_element must be float32 or float16 or bfloat16"),
        ({"kind": "sums"}, "x_scales"),
    ],
)
def test_bad_input_is_named(given: dict[str, Any], message: str) -> None:
    bc.grouped_int_gemm(**GOOD)
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=message):
        bc.grouped_int_gemm(**GOOD | given)
