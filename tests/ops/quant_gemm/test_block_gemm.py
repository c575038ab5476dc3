"""Products by weights in low-bit formats against float64 products of the decoded weights; kernels run emulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View
from baracuda_py.core.variant import Geometry, Problem
from baracuda_py.measure.tuner import only
from baracuda_py.ops.quant_gemm.block_gemm_wgmma import geometry
from baracuda_py.ops.quantize.format_kinds import FormatKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view


def stored(
    kind: str, n: int, k: int, group: int | None = None, *, zeros: bool = False, index: bool = False,
    scales: str = "float16",
) -> Any:  # fmt: skip
    """The fields and parts of a matrix of moderate numbers."""
    form, rng = FormatKind(kind).row, np.random.default_rng(7)
    codes = rng.integers(0, 256, (n, form.bytes(k)), dtype=np.uint8)
    if kind == "q4_0":
        codes.reshape(n, -1, 18)[..., :2] = (rng.uniform(0.5, 2, (n, k // 32, 1)).astype(np.float16)).view(np.uint8)
    parts: dict[str, Any] = {"codes": codes}
    fields: dict[str, Any] = {"kind": kind, "n": n, "k": k} | ({"group": group} if group else {})
    if form.scales:
        shape = (n, k // (group or form.group))
        element = form.scales[0]
        if element is ElementKind.E8M0:
            parts["scales"] = rng.integers(122, 130, shape, dtype=np.uint8)
        else:
            fields["scale_element"] = scales
            dtype = ElementKind.of(scales).dtype
            parts["scales"] = (rng.uniform(0.5, 2, shape) * rng.choice((-1, 1), shape)).astype(dtype)
        if zeros:
            fields["zero_element"], parts["zeros"] = "uint8", rng.integers(0, 16, shape, dtype=np.uint8)
        if index:
            parts["index"] = rng.integers(0, shape[1], k, dtype=np.int32)
    return fields, parts


def inputs(m: int, n: int, k: int, element: str) -> dict[str, Any]:
    rng, dtype = np.random.default_rng(1), ElementKind.of(element).dtype
    return {"x": rng.standard_normal((m, k)).astype(dtype), "bias": rng.standard_normal(n).astype(dtype)}


def run(
    fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], element: str, invariant: bool, sms: int = 3
) -> Any:
    """y in float32 on an emulated device, and the row that made it."""
    m = len(given["x"])
    desc = bc.BlockGemmDescriptor(**fields, m=m, element=element, out_element="float32")
    y = np.full((m, desc.n), np.nan, np.float32)
    with emulating():
        preference = bc.PlanPreference(batch_invariant=invariant)
        plan = bc.BlockGemmPlan.select(desc, preference, device=emulated_device(8.0, sms))
        args = bc.BlockGemmArgs(**{name: pointer_view(a) for name, a in {**parts, **given, "y": y}.items()})
        plan.run(args)
        return y, plan.plan_layout(args)[0].name


def wanted(fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], element: str) -> Any:
    """The float64 product, and that of absolute values."""
    words = {
        name: value for name, value in fields.items() if name in ("kind", "scale_element", "zero_element", "group")
    }
    w = bc.block_dequantize(**parts, **words, element=element).astype(np.float64)
    x, bias = given["x"].astype(np.float64), given["bias"].astype(np.float64)
    return x @ w.T + bias, np.abs(x) @ np.abs(w.T) + np.abs(bias)


def close(got: Any, truth: Any, scale: Any) -> bool:
    return bool((np.abs(got - truth) <= 64 * 2.0**-24 * scale).all())


CASES = [
    ("int4", 288, 96, {}, "float16", 5),
    ("uint4", 416, 32, {"zeros": True}, "bfloat16", 9),
    ("uint4", 136, 8, {"zeros": True, "index": True}, "float16", 33),
    ("nf4", 264, 24, {}, "bfloat16", 8),
    ("int8", 24, 24, {}, "float16", 1),
    ("q4_0", 160, None, {}, "float16", 16),
    ("mxfp4", 1184, None, {}, "bfloat16", 1),
    ("int4", 520, 40, {}, "float32", 9),
    ("q4_0", 288, None, {}, "float32", 3),
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "k", "group", "more", "element", "m"), CASES)
def test_stored_weights_give_the_product_of_their_values(
    kind: str, k: int, group: int | None, more: dict[str, Any], element: str, m: int
) -> None:
    """Whole chunks and tails of k, columns that fill no tile, groups of a part, a run and more."""
    fields, parts = stored(kind, 37, k, group, **more)
    given = inputs(m, 37, k, element)
    got, row = run(fields, parts, given, element, False)
    assert row == ("simt" if element == "float32" else "rows")
    assert close(got, *wanted(fields, parts, given, element))


@pytest.mark.usefixtures("emulation")
def test_a_row_has_the_same_bits_beside_any_others() -> None:
    """One row, tiles of every size, and more rows than the largest has; chunks of k in several warps."""
    fields, parts = stored("int4", 35, 1312, 32)
    given = inputs(70, 35, 1312, "float16")
    whole, row = run(fields, parts, given, "float16", True)
    assert row == "rows" and close(whole, *wanted(fields, parts, given, "float16"))
    for first, last in ((69, 70), (3, 16), (20, 53)):
        some = {"x": np.ascontiguousarray(given["x"][first:last]), "bias": given["bias"]}
        assert run(fields, parts, some, "float16", True)[0].tobytes() == whole[first:last].tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "group"), [("uint4", 32), ("q4_0", None)])
def test_bits_do_not_depend_on_the_columns_of_a_tile(kind: str, group: int | None) -> None:
    """Of 9 to 16 rows, tiles of 32 columns on a device with many multiprocessors and of 64 with few."""
    fields, parts = stored(kind, 130, 1280, group)
    given = inputs(13, 130, 1280, "bfloat16")
    wide, narrow = (run(fields, parts, given, "bfloat16", False, sms)[0] for sms in (1, 132))
    assert close(wide, *wanted(fields, parts, given, "bfloat16")) and wide.tobytes() == narrow.tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("group", "k"), [(32, 1024), (64, 1536), (128, 2048), (256, 2048)])
def test_scales_are_read_four_at_a_time(group: int, k: int) -> None:
    """Groups of which a row has a multiple of four, from the middle of four on in some warps."""
    fields, parts = stored("uint4", 37, k, group, zeros=True)
    given = inputs(3, 37, k, "bfloat16")
    assert close(run(fields, parts, given, "bfloat16", False)[0], *wanted(fields, parts, given, "bfloat16"))


@pytest.mark.parametrize(
    ("kind", "group", "m", "new", "old"),
    [("uint4", 128, 32, "mid", "mid"), ("uint4", 128, 33, "wgmma", "mid"), ("uint4", 128, 64, "wgmma", "mid"),
     ("uint4", 128, 256, "wgmma", "unpacked_mma"), ("uint4", 128, 257, "unpacked_wgmma", "unpacked_mma"),
     ("uint4", 64 + 16, 65, "unpacked_wgmma", "unpacked_mma"), ("nvfp4", None, 65, "unpacked_wgmma", "unpacked_mma"),
     ("q6_k", None, 128, "wgmma", "unpacked_mma"), ("q6_k", None, 129, "unpacked_wgmma", "unpacked_mma")],
)  # fmt: skip
def test_many_rows_go_through_unpacked_weights_but_by_tiles(kind: str, group: int, m: int, new: str, old: str) -> None:
    k = 2560
    desc = bc.BlockGemmDescriptor(kind=kind, m=m, n=512, k=k, element="bfloat16", **({"group": group} if group else {}))
    for capability, name in ((9.0, new), (8.0, old)):
        rows = [row.name for row in bc.BlockGemmPlan.variants]
        plan = bc.BlockGemmPlan.select(
            desc, bc.PlanPreference(prefer_backend="bespoke"), device=fake_device(capability)
        )
        assert name in rows and plan.sku.variant == name


TILED = [  # kind, n, k, group, more, element, m, columns of a tile, parts of k
    ("uint4", 250, 1056, 32, {"zeros": True}, "float16", 256, 256, 3),  # the last part has fewer stages
    ("uint4", 136, 272, 8, {"zeros": True, "index": True}, "bfloat16", 66, 128, 1),
    ("int8", 130, 192, 64, {"scales": "bfloat16"}, "bfloat16", 66, 128, 1),  # scaled in the element
    ("uint4", 140, 256, 32, {"zeros": True, "scales": "bfloat16"}, "bfloat16", 200, 256, 1),
    ("nf4", 129, 72, 24, {}, "bfloat16", 140, 256, 1),  # groups of parts, and k that ends within a run
    ("q4_0", 264, 1312, None, {}, "float16", 70, 128, 4),
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "n", "k", "group", "more", "element", "m", "columns", "parts"), TILED)
def test_tiles_of_stored_weights_give_the_product_of_their_values(
    kind: str, n: int, k: int, group: int | None, more: dict[str, Any], element: str, m: int, columns: int, parts: int
) -> None:
    fields, parts_of = stored(kind, n, k, group, **more)
    given = inputs(m, n, k, element)
    got, geometry = tiled(fields, parts_of, given, element)
    first = geometry.steps[0]
    assert first.kernel == f"wgmma_{columns}" and first.params["parts"] == parts
    assert close(got, *wanted(fields, parts_of, given, element))


def tiled(fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], element: str) -> Any:
    """y in float32 by tiles of stored weights on an emulated device of two multiprocessors, and what is launched."""
    desc = bc.BlockGemmDescriptor(**fields, m=len(given["x"]), element=element, out_element="float32")
    y = np.full((desc.m, desc.n), np.nan, np.float32)
    with emulating():
        chosen = bc.BlockGemmPlan.select(desc, device=emulated_device(9.0, 2))
        plan = only(chosen, next(row for row in chosen.rows if row.name == "wgmma"))
        args = bc.BlockGemmArgs(**{name: pointer_view(a) for name, a in {**parts, **given, "y": y}.items()})
        plan.run(args)
        row, geometry, _ = plan.plan_layout(args)
        assert row.name == "wgmma"
        return y, geometry


@pytest.mark.parametrize("k", [0, 8, 64, 320, 520, 4096, 14344])
def test_parts_of_k_are_whole_turns_and_none_is_empty(k: int) -> None:
    """And how many there are does not depend on the device."""
    for m in (1, 65, 129, 300, 513, 2048):
        desc = bc.BlockGemmDescriptor(kind="uint4", m=m, n=1000, k=k, group=8, element="bfloat16")
        views = dict.fromkeys(("zeros", "index", "bias")) | {
            "x": View(0, (m, k), (k, 1), desc.element), "y": View(0, (m, 1000), (1000, 1), desc.element),
            "codes": View(0, desc.codes_shape, (k // 2, 1), ElementKind.U8),
            "scales": View(0, desc.scales_shape, (k // 8, 1), ElementKind.F32),
        }  # fmt: skip
        made = [geometry(Problem(desc, replace(fake_device(9.0), sms=sms), views)) for sms in (2, 114, 132)]
        assert all(isinstance(one, Geometry) for one in made)
        values = made[0].steps[0].params
        parts, each = values["parts"], values["each"]
        last = -(-k // 64) - (parts - 1) * each
        assert parts == 1 or (each % 2 == 0 and 0 < last <= each)
        assert values["lead"] == min(2, last) and len(made[0].steps) == 1 + (parts > 1)
        assert {(one.steps[0].params["parts"], one.steps[0].params["each"]) for one in made} == {(parts, each)}


def test_gradient_of_x_goes_through_the_weights() -> None:
    fields, parts = stored("nf4", 24, 64, 32)
    del fields["n"], fields["k"]
    dy = np.random.default_rng(3).standard_normal((5, 24)).astype(np.float32)
    w = bc.block_dequantize(**parts, **fields, element="float32").astype(np.float64)
    got = bc.block_gemm_backward(**parts, dy=dy, **fields)
    assert np.allclose(got, dy @ w, rtol=1e-6, atol=1e-5)


def test_quantized_matmul_takes_any_leading_axes() -> None:
    _, parts = stored("uint4", 7, 64, 32, zeros=True)
    x = np.random.default_rng(3).standard_normal((2, 3, 64)).astype(np.float32)
    bias = np.arange(7, dtype=np.float32)
    w = bc.block_dequantize(**parts, kind="uint4", zero_element="uint8", element="float32")
    want = x @ w.T + bias
    assert np.allclose(bc.quantized_matmul(x, **parts, bias=bias, kind="uint4"), want, rtol=1e-5, atol=1e-4)
    out = np.empty((2, 3, 7), np.float32)
    assert bc.quantized_matmul(x, **parts, bias=bias, kind="uint4", out=out) is out
    assert np.allclose(out, want, rtol=1e-5, atol=1e-4)


def words(values: Any) -> Any:
    """int4 values [k, n] by KAIO's packing, as rows of words."""
    nibbles = (values.T.astype(np.int64) & 15).reshape(values.shape[1], -1, 8)
    return np.ascontiguousarray((nibbles << (4 * np.arange(8))).sum(-1)).astype(np.uint32).view(np.int32)


@pytest.mark.parametrize(("n", "groups"), [(13, 1), (13, 2), (6, 3), (1, 2)])
def test_matmul_int4_is_right_for_odd_widths_and_several_groups(n: int, groups: int) -> None:
    rng = np.random.default_rng(5)
    k = 128 * groups
    q, scales = rng.integers(-8, 8, (k, n)), rng.uniform(0.01, 0.1, (groups, n)).astype(np.float16)
    a = rng.standard_normal((5, k)).astype(np.float16)
    w = (q.astype(np.float16) * np.repeat(scales, 128, axis=0)).astype(np.float64)
    packed = words(q)
    got = bc.matmul_int4(a, packed, scales)
    assert got.dtype == np.float32 and np.allclose(got, a.astype(np.float64) @ w, rtol=1e-5, atol=1e-5)
    assert np.array_equal(bc.matmul_int4(a, packed.reshape(k // 8, n), scales), got)
    unsigned = packed.view(np.uint32)  # KAIO's own type
    assert np.array_equal(bc.matmul_int4(a, unsigned, scales), got)
    assert np.array_equal(bc.matmul_int4(a, unsigned.reshape(k // 8, n), scales), got)
    for y in bc.qkv_project_int4(a, *[unsigned] * 3, *[scales] * 3):
        assert np.allclose(y, got, rtol=2**-10, atol=2**-10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"packed": np.zeros((3, 5), np.int32)}, "words of shape"),
        ({"packed": np.zeros((3, 4), np.int64)}, "int32 or uint32"),
        ({"a": np.zeros((2, 32), np.float32)}, "float16"),
        ({"scales": np.zeros((3, 3), np.float16)}, "groups of a multiple of 8"),
        ({"a": np.zeros((2, 36), np.float16)}, "multiple of 8"),
    ],
)
def test_what_matmul_int4_refuses(given: dict[str, Any], message: str) -> None:
    good = {
        "a": np.zeros((2, 32), np.float16), "packed": np.zeros((3, 4), np.int32), "scales": np.zeros((2, 3), np.float16)
    }  # fmt: skip
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=message):
        bc.matmul_int4(**good | given)


def test_out_element_is_that_of_x_or_float32() -> None:
    with pytest.raises(bc.InvalidProblemError, match="out_element must be float16 or float32"):
        bc.BlockGemmDescriptor(kind="int4", m=1, n=1, k=8, element="float16", out_element="bfloat16")
