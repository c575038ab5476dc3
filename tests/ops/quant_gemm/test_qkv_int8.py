"""q, k and v by int8 matrices [k, n]: any strides and widths, scales and biases, gradients; kernels run emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

WIDTHS = {"q": 70, "k": 6, "v": 33}


def problem(m: int, k: int, element: str) -> dict[str, Any]:
    """Operands: W of q in rows of words, of k in rows of 6 bytes, of v as the transposed view of rows along k."""
    rng, dtype = np.random.default_rng(2), ElementKind.of(element).dtype
    q = np.zeros((k, 72), np.int8)[:, : WIDTHS["q"]]
    q[...] = rng.integers(-128, 128, q.shape)
    return {
        "x": rng.standard_normal((m, k)).astype(dtype), "w_q": q,
        "w_k": rng.integers(-128, 128, (k, WIDTHS["k"]), dtype=np.int8),
        "w_v": rng.integers(-128, 128, (WIDTHS["v"], k), dtype=np.int8).T,
        "scales_k": rng.uniform(0.001, 0.01, WIDTHS["k"]).astype(np.float32),
        "bias_q": rng.standard_normal(WIDTHS["q"]).astype(dtype),
        "bias_k": rng.standard_normal(WIDTHS["k"]).astype(dtype),
    }  # fmt: skip


SCALES = {"q": 0.0078125, "k": 1.0, "v": 0.01}


def run(plan: Any, desc: Any, args: Any, given: dict[str, Any]) -> str:
    """Runs on an emulated device; the name of the row that ran."""
    with emulating():
        chosen = plan.select(desc, bc.PlanPreference(prefer_backend="bespoke"), device=emulated_device(8.0, 3))
        scales = {f"scale_{name}": value for name, value in SCALES.items()}
        held = args(**{name: pointer_view(a) for name, a in given.items()}, **scales)
        chosen.run(held)
        return str(chosen.plan_layout(held)[0].name)


def projected(given: dict[str, Any], element: str) -> tuple[dict[str, Any], str]:
    m, k = given["x"].shape
    desc = bc.QkvInt8Descriptor(m=m, k=k, **{f"n_{name}": n for name, n in WIDTHS.items()}, element=element)
    y = {f"y_{name}": np.full((m, n), np.nan, given["x"].dtype) for name, n in WIDTHS.items()}
    return y, run(bc.QkvInt8Plan, desc, bc.QkvInt8Args, given | y)


def truth(given: dict[str, Any], name: str) -> tuple[Any, Any]:
    """The float64 result, and that of absolute values."""
    x, w = given["x"].astype(np.float64), given[f"w_{name}"].astype(np.float64)
    scale = np.float32(SCALES[name]) * given.get(f"scales_{name}", np.float32(1)).astype(np.float64)
    bias = given.get(f"bias_{name}", np.zeros(1)).astype(np.float64)
    return (x @ w) * scale + bias, (np.abs(x) @ np.abs(w)) * np.abs(scale) + np.abs(bias)


HALF_ULP = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("m", "k", "element", "row"),
    [
        (1, 1104, "float16", "few"),  # several chunks for some warps, a chunk that is not whole
        (5, 77, "bfloat16", "few"),  # rows of x that start anywhere
        (33, 64, "float16", "few"),
        (65, 48, "float16", "widened_mma"),
        (3, 20, "float32", "widened_simt"),
    ],
)
def test_results_are_the_rounded_products(m: int, k: int, element: str, row: str) -> None:
    """Every layout of W in one problem: words along n, a column count that is 2 mod 4, runs along k."""
    given = problem(m, k, element)
    y, ran = projected(given, element)
    assert ran == row
    for name in WIDTHS:
        want, magnitude = truth(given, name)
        got = y[f"y_{name}"].astype(np.float64)
        assert (np.abs(got - want) <= HALF_ULP[element] * np.abs(want) + 32 * 2.0**-24 * magnitude).all(), name


@pytest.mark.usefixtures("emulation")
def test_bits_depend_on_neither_layout_nor_other_rows() -> None:
    given = problem(20, 208, "float16")
    whole, _ = projected(given, "float16")
    lain = {f"w_{name}": np.ascontiguousarray(given[f"w_{name}"].T).T for name in "qk"}
    lain |= {"w_v": np.ascontiguousarray(given["w_v"])}
    other = given | lain | {"x": np.ascontiguousarray(given["x"][7:8])}
    alone, _ = projected(other, "float16")
    for name in WIDTHS:
        assert whole[f"y_{name}"][7:8].tobytes() == alone[f"y_{name}"].tobytes(), name


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_gradient_of_x_sums_the_three_products(element: str) -> None:
    m, k = 5, 40
    given = problem(m, k, element)
    rng = np.random.default_rng(4)
    dy = {f"dy_{name}": rng.standard_normal((m, n)).astype(given["x"].dtype) for name, n in WIDTHS.items()}
    desc = bc.QkvInt8BackwardDescriptor(m=m, k=k, **{f"n_{name}": n for name, n in WIDTHS.items()}, element=element)
    dx = np.full((m, 2 * k), np.nan, given["x"].dtype)[:, ::2]
    held = {name: a for name, a in given.items() if name[0] == "w" or name.startswith("scales")}
    run(bc.QkvInt8BackwardPlan, desc, bc.QkvInt8BackwardArgs, held | dy | {"dx": dx})
    want, magnitude = np.zeros((m, k)), np.zeros((m, k))
    for name in WIDTHS:
        w = (
            given[f"w_{name}"].astype(np.float32)
            * np.float32(SCALES[name])
            * given.get(f"scales_{name}", np.float32(1))
        )
        w = w.astype(given["x"].dtype).astype(np.float64)
        want += dy[f"dy_{name}"].astype(np.float64) @ w.T
        magnitude += np.abs(dy[f"dy_{name}"].astype(np.float64)) @ np.abs(w.T)
    assert (np.abs(dx - want) <= HALF_ULP[element] * np.abs(want) + 32 * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize(("m", "launches"), [(1, 1), (64, 1), (65, 6)])
def test_few_rows_take_one_launch(m: int, launches: int) -> None:
    desc = bc.QkvInt8Descriptor(m=m, n_q=512, n_k=128, n_v=128, k=512, element="bfloat16")
    plan = bc.QkvInt8Plan.select(desc, bc.PlanPreference(prefer_backend="bespoke"), device=fake_device(8.0))
    assert len(plan._choose(plan._dense)[1].steps) == launches
