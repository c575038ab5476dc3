"""q, k and v by stored matrices: the bits of three products, one launch for few rows; gradients of x; refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

WIDTHS = {"q": 37, "k": 5, "v": 18}


def stored(kind: str, n: int, k: int, group: int, *, zeros: bool, seed: int) -> dict[str, Any]:
    """The parts of a matrix of moderate numbers."""
    form, rng = FormatKind(kind).row, np.random.default_rng(seed)
    codes = rng.integers(0, 256, (n, form.bytes(k)), dtype=np.uint8)
    if kind == "q8_0":
        codes.reshape(n, -1, 34)[..., :2] = rng.uniform(0.5, 2, (n, k // 32, 1)).astype(np.float16).view(np.uint8)
    parts: dict[str, Any] = {"codes": codes}
    if form.scales:
        parts["scales"] = rng.uniform(0.5, 2, (n, k // group)).astype(np.float16)
    if zeros:
        parts["zeros"] = rng.integers(0, 16, (n, k // group), dtype=np.uint8)
    return parts


def problem(kind: str, m: int, k: int, group: int, element: str, zeros: bool = False) -> tuple[Any, Any, Any]:
    """The fields that the matrices share, the parts and the bias of each, and x. k has no bias."""
    dtype, rng = ElementKind.of(element).dtype, np.random.default_rng(1)
    fields: dict[str, Any] = {"kind": kind, "k": k, "group": group, "element": element}
    if FormatKind(kind).row.scales:
        fields |= {"scale_element": "float16"}
    if zeros:
        fields |= {"zero_element": "uint8"}
    matrices = {}
    for i, (name, n) in enumerate(WIDTHS.items()):
        matrices[name] = stored(kind, n, k, group, zeros=zeros and name != "v", seed=i)
        if name != "k":
            matrices[name]["bias"] = rng.standard_normal(n).astype(dtype)
    return fields, matrices, rng.standard_normal((m, k)).astype(dtype)


def on_device(plan: Any, desc: Any, args: Any, given: Any, y: Any, capability: float = 8.0, **scales: float) -> str:
    """Runs on an emulated device, few rows in the order of sums that they have at any number; the name of the row."""
    invariant = desc.m <= 64 and plan.direction == "forward"
    preference = bc.PlanPreference(prefer_backend="bespoke", batch_invariant=invariant)
    with emulating():
        chosen = plan.select(desc, preference, device=emulated_device(capability, 3))
        held = args(**{name: pointer_view(a) for name, a in {**given, **y}.items()}, **scales)
        chosen.run(held)
        return str(chosen.plan_layout(held)[0].name)


CASES = [
    ("int4", 1184, 32, "bfloat16", False, 17),
    ("uint4", 264, 24, "float16", True, 3),
    ("nf4", 96, 32, "float32", False, 9),
    ("q8_0", 64, 32, "float16", False, 65),
    ("int4", 128, 32, "bfloat16", False, 66),
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "k", "group", "element", "zeros", "m"), CASES)
def test_the_bits_are_those_of_three_products(kind: str, k: int, group: int, element: str, zeros: bool, m: int) -> None:
    """Widths that fill no tile, tails of k, few rows and many, zero points and biases of some of the matrices."""
    fields, matrices, x = problem(kind, m, k, group, element, zeros)
    scales = {"q": 0.40625, "k": 1.0, "v": 1.625}
    capability = 9.0 if m == 66 else 8.0
    desc = bc.QkvGemmDescriptor(m=m, **{f"n_{name}": n for name, n in WIDTHS.items()}, **fields)
    y = {f"y_{name}": np.full((m, n), np.nan, x.dtype) for name, n in WIDTHS.items()}
    given = {f"{what}_{name}": a for name, parts in matrices.items() for what, a in parts.items()}
    row = on_device(
        bc.QkvGemmPlan,
        desc,
        bc.QkvGemmArgs,
        {"x": x, **given},
        y,
        capability,
        **{f"scale_{n}": s for n, s in scales.items()},
    )
    many = "wgmma" if capability == 9.0 else "unpacked_mma"
    assert row == ("simt" if element == "float32" else "rows" if m <= 64 else many)
    for name, n in WIDTHS.items():
        alone = {"y": np.full((m, n), np.nan, x.dtype)}
        one = bc.BlockGemmDescriptor(m=m, n=n, **fields)
        assert row == on_device(
            bc.BlockGemmPlan, one, bc.BlockGemmArgs, {"x": x, **matrices[name]}, alone, capability, scale=scales[name]
        )
        assert np.isfinite(alone["y"].astype(np.float32)).all()
        assert y[f"y_{name}"].tobytes() == alone["y"].tobytes(), name


@pytest.mark.parametrize(("m", "launches"), [(1, 1), (64, 1), (65, 6)])
def test_few_rows_take_one_launch(m: int, launches: int) -> None:
    desc = bc.QkvGemmDescriptor(
        kind="int4", m=m, n_q=512, n_k=128, n_v=128, k=512, group=128, element="bfloat16"
    )  # fmt: skip
    plan = bc.QkvGemmPlan.select(desc, bc.PlanPreference(prefer_backend="bespoke"), device=fake_device(8.0))
    assert len(plan._choose(plan._dense)[1].steps) == launches


def dequantized(parts: dict[str, Any], fields: dict[str, Any]) -> Any:
    known = {
        name: value for name, value in fields.items() if name in ("kind", "scale_element", "zero_element", "group")
    }
    given = {name: a for name, a in parts.items() if name != "bias"}
    return bc.block_dequantize(**given, **known, element=fields["element"]).astype(np.float64)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("element", "out"), [("float16", "float16"), ("bfloat16", "float32")])
def test_gradient_of_x_sums_the_three_products(element: str, out: str) -> None:
    """Rounded once: within half an ulp of the float64 sum, where three rounded products would not be."""
    m, k = 5, 96
    fields, matrices, x = problem("int4", m, k, 32, element)
    rng = np.random.default_rng(3)
    dy = {
        f"dy_{name}": rng.standard_normal((m, n)).astype(x.dtype).astype(ElementKind.of(out).dtype)
        for name, n in WIDTHS.items()
    }
    desc = bc.QkvGemmBackwardDescriptor(
        m=m, **{f"n_{name}": n for name, n in WIDTHS.items()}, **fields, out_element=out
    )
    dx = np.full((k, m), np.nan, x.dtype).T  # rows that do not lie along memory
    given = {f"{what}_{name}": a for name, parts in matrices.items() for what, a in parts.items() if what != "bias"}
    on_device(bc.QkvGemmBackwardPlan, desc, bc.QkvGemmBackwardArgs, {**given, **dy}, {"dx": dx})
    want = sum(dy[f"dy_{name}"].astype(np.float64) @ dequantized(parts, fields) for name, parts in matrices.items())
    magnitude = sum(
        np.abs(dy[f"dy_{name}"].astype(np.float64)) @ np.abs(dequantized(parts, fields))
        for name, parts in matrices.items()
    )
    half_ulp = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[element]
    assert (np.abs(dx.astype(np.float64) - want) <= half_ulp * np.abs(want) + 32 * 2.0**-24 * magnitude).all()


def test_without_columns_the_gradient_is_zero() -> None:
    codes, none = np.zeros((0, 32), np.uint8), np.zeros((2, 0), np.float32)
    given = {f"codes_{part}": codes for part in "qkv"} | {f"dy_{part}": none for part in "qkv"}
    scales = {f"scales_{part}": np.zeros((0, 1), np.float32) for part in "qkv"}
    dx = bc.qkv_gemm_backward(**given, **scales, kind="int8")
    assert dx.shape == (2, 32) and not dx.any()
