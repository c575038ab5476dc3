"""Products of a few dozen to some hundred rows by stored weights, emulated, against float64 products of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.quant_gemm.block_gemm_mid import parts_of
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view


def stored(kind: str, n: int, k: int, group: int | None, scale: str, zeros: bool) -> tuple[dict[str, Any], Any]:
    """The fields and parts of a matrix of moderate numbers."""
    form, rng = FormatKind(kind).row, np.random.default_rng(7)
    codes = rng.integers(0, 256, (n, form.bytes(k)), dtype=np.uint8)
    halves = {"q4_0": (18, (0,)), "q4_k": (144, (0, 2))}.get(kind, (0, ()))
    for at in halves[1]:
        numbers = rng.uniform(0.5, 2, (n, form.bytes(k) // halves[0], 1)).astype(np.float16)
        codes.reshape(n, -1, halves[0])[..., at : at + 2] = numbers.view(np.uint8)
    parts: dict[str, Any] = {"codes": codes}
    fields: dict[str, Any] = {"kind": kind, "n": n, "k": k} | ({"group": group} if group else {})
    if form.scales:
        shape = (n, k // (group or form.group))
        if form.scales[0] is ElementKind.E8M0:
            parts["scales"] = rng.integers(122, 130, shape, dtype=np.uint8)
        else:
            fields["scale_element"] = scale
            numbers = rng.uniform(0.5, 2, shape) * rng.choice((-1, 1), shape)
            parts["scales"] = numbers.astype(ElementKind.of(scale).dtype)
        if zeros:
            fields["zero_element"], parts["zeros"] = "uint8", rng.integers(0, 16, shape, dtype=np.uint8)
    return fields, parts


def run(
    fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], y: Any, element: str, sms: int = 3
) -> Any:
    """Writes y on an emulated device; what is launched."""
    desc = bc.BlockGemmDescriptor(
        **fields, m=len(given["x"]), element=element, out_element="float32" if y.dtype == np.float32 else element
    )
    with emulating():
        plan = bc.BlockGemmPlan.select(desc, device=emulated_device(9.0, sms))
        plan.rows = tuple(row for row in plan.rows if row.name == "mid")  # also where another row is faster
        args = bc.BlockGemmArgs(**{name: pointer_view(a) for name, a in {**parts, **given, "y": y}.items()})
        plan.run(args)
        row, geometry, _ = plan.plan_layout(args)
    assert row.name == "mid"
    return geometry


def inputs(m: int, n: int, k: int, element: str) -> dict[str, Any]:
    rng, dtype = np.random.default_rng(1), ElementKind.of(element).dtype
    return {"x": rng.standard_normal((m, k)).astype(dtype), "bias": rng.standard_normal(n).astype(dtype)}


def wanted(fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], element: str) -> tuple[Any, Any]:
    """The float64 product, and that of absolute values."""
    words = {name: fields[name] for name in ("kind", "scale_element", "zero_element", "group") if name in fields}
    w = bc.block_dequantize(**parts, **words, element=element).astype(np.float64)
    x, bias = given["x"].astype(np.float64), given["bias"].astype(np.float64)
    return x @ w.T + bias, np.abs(x) @ np.abs(w.T) + np.abs(bias)


CASES = [  # kind, scales, zeros, group, m, n, k, element, parts of k
    ("uint4", "bfloat16", True, 32, 17, 130, 288, "bfloat16", 1),
    ("uint4", "float32", True, 32, 33, 40, 1312, "float16", 2),
    ("uint4", "float16", False, 64, 130, 33, 192, "float16", 1),
    ("int8", "float16", False, 96, 64, 129, 96, "bfloat16", 1),
    ("uint3", "float16", True, 64, 100, 20, 320, "bfloat16", 1),
    ("nf4", "bfloat16", False, 64, 100, 24, 704, "bfloat16", 1),
    ("mxfp4", "", False, None, 256, 17, 160, "bfloat16", 1),
    ("q4_0", "", False, None, 100, 37, 384, "float16", 1),
    ("q4_k", "", False, None, 33, 40, 1280, "bfloat16", 2),
    (
        "uint4",
        "bfloat16",
        True,
        128,
        17,
        33,
        3584,
        "bfloat16",
        6,
    ),  # whose scales come four at a time, some from within four
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "scale", "zeros", "group", "m", "n", "k", "element", "parts"), CASES)
def test_products_are_those_of_the_values(
    kind: str, scale: str, zeros: bool, group: int | None, m: int, n: int, k: int, element: str, parts: int
) -> None:
    """Tiles that are not full, k that ends within a chunk or makes less than one, and parts of k."""
    fields, of_w = stored(kind, n, k, group, scale, zeros)
    given = inputs(m, n, k, element)
    y = np.full((m, n), np.nan, np.float32)
    step = run(fields, of_w, given, y, element).steps[0]
    truth, size = wanted(fields, of_w, given, element)
    assert (np.abs(y - truth) <= 64 * 2.0**-24 * size).all()
    assert step.params["parts"] == parts


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("k", "m", "pad"), [(64, 17, 0), (64, 70, 3), (1280, 40, 3)])
def test_y_has_any_strides_and_x_padded_rows(k: int, m: int, pad: int) -> None:
    """Stores of 16 bytes, scalars along n and along m, by the tile and by what adds parts of k."""
    fields, of_w = stored("uint4", 44, k, 32, "bfloat16", True)
    given = inputs(m, 44, k, "bfloat16")
    held = np.zeros((m, k + 8), given["x"].dtype)
    held[:, :k] = given["x"]
    truth, size = wanted(fields, of_w, given, "bfloat16")
    for y in (np.zeros((m, 44 + pad), held.dtype)[:, :44], np.zeros((44, m), held.dtype).T):
        steps = run(fields, of_w, given | {"x": held[:, :k]}, y, "bfloat16").steps
        assert len(steps) == 1 + (k > 64)
        assert (np.abs(y.astype(np.float64) - truth) <= 64 * 2.0**-24 * size + 2.0**-8 * np.abs(truth)).all()


@pytest.mark.usefixtures("emulation")
def test_matrices_of_a_batch_and_rows_that_share_scales() -> None:
    rng, form = np.random.default_rng(2), {"kind": "int4", "group": 64, "row_group": 2, "element": "float16"}
    codes = rng.integers(0, 256, (2, 9, 96), dtype=np.uint8)
    scales = rng.uniform(0.5, 2, (2, 5, 3)).astype(np.float32)
    x, y = rng.standard_normal((2, 18, 192)).astype(np.float16), np.full((2, 18, 9), np.nan, np.float32)
    w = bc.block_dequantize(codes=codes, scales=scales, **form).astype(np.float64)
    desc = bc.BlockGemmDescriptor(batch_shape=(2,), m=18, n=9, k=192, out_element="float32", **form)
    with emulating():
        plan = bc.BlockGemmPlan.select(desc, device=emulated_device(8.0, 3))
        given = {"codes": codes, "scales": scales, "x": x, "y": y}
        args = bc.BlockGemmArgs(**{name: pointer_view(a) for name, a in given.items()}, scale=0.5)
        plan.run(args)
        assert plan.plan_layout(args)[0].name == "mid"
    w = (w * 0.5).astype(np.float16).astype(np.float64)
    truth, size = x.astype(np.float64) @ w.swapaxes(1, 2), np.abs(x) @ np.abs(w).swapaxes(1, 2)
    assert (np.abs(y - truth) <= 64 * 2.0**-24 * size).all()


@pytest.mark.parametrize(("m", "name"), [(16, "rows"), (17, "mid"), (64, "mid"), (65, "unpacked_mma")])
def test_rows_of_x_choose_the_row(m: int, name: str) -> None:
    desc = bc.BlockGemmDescriptor(kind="uint4", m=m, n=512, k=512, group=128, element="bfloat16")
    chosen = bc.BlockGemmPlan.select(desc, bc.PlanPreference(prefer_backend="bespoke"), device=fake_device(8.0))
    assert chosen.sku.variant == name


@pytest.mark.parametrize("desc", [{"m": 20}, {"m": 20, "group": 8, "k": 64}, {"m": 100, "kind": "int8", "group": 512}])
def test_what_it_refuses_others_take(desc: dict[str, Any]) -> None:
    """Devices without room for the chunks of x, and groups that are no whole runs."""
    fields = {"kind": "uint4", "n": 512, "k": 512, "group": 128, "element": "bfloat16"} | desc
    chosen = bc.BlockGemmPlan.select(bc.BlockGemmDescriptor(**fields), device=fake_device(8.6))
    assert chosen.sku.variant != "mid"


@pytest.mark.parametrize("k", [0, 8, 128, 1032, 4096, 14336])
@pytest.mark.parametrize("m", [17, 64, 65, 100])
def test_parts_of_k_are_whole_chunks_and_none_is_empty(m: int, k: int) -> None:
    """And those of products with few tiles are many."""
    for n in (1, 4096, 57344):
        desc = bc.BlockGemmDescriptor(kind="uint4", m=m, n=n, k=k, group=8, element="bfloat16")
        parts, each = parts_of(desc)
        chunks = -(-k // 128)
        assert parts == 1 or 0 < chunks - (parts - 1) * each <= each
        assert parts * each >= chunks and (parts > 1 or n != 4096 or k < 4096)
