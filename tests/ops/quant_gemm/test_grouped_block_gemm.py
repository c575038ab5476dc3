"""Products of experts by stored weights: known values, the bits of block_gemm, any offsets, gradients, bad input."""

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


def stored(kind: str, experts: int, n: int, k: int, group: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and parts of weights that stand for moderate numbers."""
    rng, shape = np.random.default_rng(7), (experts, n, k)
    if kind == "q4_0":
        codes = rng.integers(0, 256, (experts, n, k // 32, 18), dtype=np.uint8)
        codes[..., :2] = rng.uniform(0.5, 2, (*codes.shape[:-1], 1)).astype(np.float16).view(np.uint8)
        return {"kind": kind}, {"codes": codes.reshape(experts, n, -1)}
    codes, scales = bc.block_quantize(rng.standard_normal(shape, dtype=np.float32), kind=kind, group=group)[:2]
    return {"kind": kind, "group": group}, {"codes": codes, "scales": scales}


def inputs(total: int, experts: int, n: int, k: int, element: str) -> dict[str, Any]:
    rng, dtype = np.random.default_rng(1), ElementKind.of(element).dtype
    return {
        "x": rng.standard_normal((total, k)).astype(dtype), "bias": rng.standard_normal((experts, n)).astype(dtype)
    }  # fmt: skip


def emulate(plan: Any, desc: Any, out: str, shape: tuple[int, int], given: dict[str, Any], preference: Any) -> Any:
    """An output with nothing in it before, from one emulated multiprocessor, whose blocks walk several tiles."""
    y = np.full(shape, np.nan, desc.element.dtype)
    with emulating():
        chosen = plan.select(desc, preference, device=emulated_device(8.0, 1))
        args = chosen.args(**{name: pointer_view(a) for name, a in {**given, out: y}.items()})
        chosen.run(args)
        return y, chosen.plan_layout(args)[0].name


def by_experts(desc_fields: dict[str, Any], parts: dict[str, Any], given: dict[str, Any], offsets: Any) -> Any:
    """The rows' product and tolerance in float64, with the offsets taken as they are said to be."""
    element = str(ElementKind.of(given["x"].dtype))
    w = bc.block_dequantize(**parts, **desc_fields, element=element).astype(np.float64)
    x, bias = given["x"].astype(np.float64), given["bias"].astype(np.float64)
    y, scale = (np.zeros((len(x), w.shape[1])) for _ in range(2))
    bounds = [0, *np.maximum.accumulate(np.clip(offsets, 0, len(x)))]
    for e in range(len(w)):
        rows = slice(bounds[e], bounds[e + 1])
        y[rows] = x[rows] @ w[e].T + bias[e]
        scale[rows] = np.abs(x[rows]) @ np.abs(w[e].T) + np.abs(bias[e])
    return y, scale


CASES = [
    ("int4", 150, 288, 96, "float16", "rows"), ("nf4", 37, 264, 24, "bfloat16", "rows"),
    ("q4_0", 37, 160, None, "float16", "rows"), ("uint4", 37, 72, 8, "float32", "simt"),
]  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "n", "k", "group", "element", "row"), CASES)
def test_rows_meet_the_weights_of_their_expert(
    kind: str, n: int, k: int, group: int | None, element: str, row: str
) -> None:
    """Experts of no row, of a part of a tile and of several; rows behind the last; columns that fill no tile."""
    fields, parts = stored(kind, 4, n, k, group)
    given = inputs(64, 4, n, k, element)
    ends = np.array([3, 3, 44, 60])
    desc = bc.GroupedBlockGemmDescriptor(**fields, total=64, experts=4, n=n, k=k, element=element)
    y, name = emulate(bc.GroupedBlockGemmPlan, desc, "y", (64, n), {**parts, **given, "offsets": ends}, None)
    want, scale = by_experts(fields, parts, given, ends)
    rounding = 2.0 ** -{"float16": 11, "bfloat16": 8, "float32": 24}[element]
    assert name == row and not y[60:].any()
    assert (np.abs(y.astype(np.float64) - want) <= 64 * 2.0**-24 * scale + rounding * np.abs(want) * 1.01).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("element", "k"), [("float16", 1312), ("float32", 416)])
def test_a_row_has_the_bits_of_block_gemm_alone(element: str, k: int) -> None:
    """In tiles of every size, among few rows and many, and whichever group it is in."""
    fields, parts = stored("int4", 3, 35, k, 32)
    given = inputs(70, 3, 35, k, element)

    def product(first: int, last: int, ends: list[int]) -> Any:
        rows = {**parts, **given, "x": given["x"][first:last].copy(), "offsets": np.array(ends)}
        desc = bc.GroupedBlockGemmDescriptor(**fields, total=last - first, experts=3, n=35, k=k, element=element)
        return emulate(bc.GroupedBlockGemmPlan, desc, "y", (last - first, 35), rows, INVARIANT)[0]

    whole = product(0, 70, [4, 50, 70])
    assert product(20, 60, [0, 30, 40]).tobytes() == whole[20:60].tobytes()
    for r, expert in ((2, 0), (33, 1), (69, 2)):
        alone = {name: array[expert] for name, array in parts.items()}
        one = {**alone, "x": given["x"][r : r + 1].copy(), "bias": given["bias"][expert]}
        desc = bc.BlockGemmDescriptor(**fields, m=1, n=35, k=k, element=element)
        y, _ = emulate(bc.BlockGemmPlan, desc, "y", (1, 35), one, INVARIANT)
        assert y.tobytes() == whole[r : r + 1].tobytes()
        assert product(r, r + 1, [int(i >= expert) for i in range(3)]).tobytes() == y.tobytes()


@pytest.mark.parametrize("place", ["numpy", "emulated"])
@pytest.mark.parametrize("offsets", [[5, 2, 1000], [-3, 4, 4], [2**31 + 5, 0, 7], [9, 9, 9]])
def test_any_offsets_are_groups(place: str, offsets: list[int], request: pytest.FixtureRequest) -> None:
    """Those that decrease or leave the rows are clamped, on every backend."""
    fields, parts = stored("nf4", 3, 5, 32, 32)
    given = inputs(9, 3, 5, 32, "float16")
    ends = np.array(offsets)
    if place == "emulated":
        request.getfixturevalue("emulation")
        desc = bc.GroupedBlockGemmDescriptor(**fields, total=9, experts=3, n=5, k=32, element="float16")
        y, _ = emulate(bc.GroupedBlockGemmPlan, desc, "y", (9, 5), {**parts, **given, "offsets": ends}, None)
    else:
        y = bc.grouped_block_gemm(**parts, **fields, **given, offsets=ends)
    want, scale = by_experts(fields, parts, given, ends)
    assert (np.abs(y.astype(np.float64) - want) <= 2.0**-10 * scale).all()
    assert np.array_equal(y == 0, want == 0)


@pytest.mark.parametrize(
    ("element", "total", "row"),
    [("bfloat16", 128, "rows"), ("bfloat16", 129, "unpacked"), ("float32", 128, "simt"), ("float32", 129, "unpacked")],
)
def test_rows_for_each_expert_say_which_way_they_go(element: str, total: int, row: str) -> None:
    desc = bc.GroupedBlockGemmDescriptor(kind="uint4", total=total, experts=8, n=512, k=512, group=128, element=element)
    for capability in (8.0, 9.0):
        plan = bc.GroupedBlockGemmPlan.select(desc, device=fake_device(capability))
        assert plan.sku.variant.startswith(row)
        assert plan.workspace_size() == 8 * 512 * 512 * desc.element.itemsize  # the most over all rows
        plan = bc.GroupedBlockGemmPlan.select(desc, INVARIANT, device=fake_device(capability))
        assert plan.sku.variant == ("simt" if element == "float32" else "rows") and plan.workspace_size() == 0


def test_gradient_of_x_goes_through_the_weights_of_its_expert() -> None:
    fields, parts = stored("nf4", 3, 24, 64, 32)
    dy = np.random.default_rng(3).standard_normal((9, 24)).astype(np.float32)
    w = bc.block_dequantize(**parts, **fields, element="float32").astype(np.float64)
    got = bc.grouped_block_gemm_backward(**parts, dy=dy, offsets=np.array([1, 4, 4, 8]), **fields)
    want = np.zeros((9, 64))
    want[1:4], want[4:8] = dy[1:4] @ w[0], dy[4:8] @ w[2]
    assert np.allclose(got, want, rtol=1e-6, atol=1e-5) and not got[[0, 8]].any()


def test_gradients_in_torch() -> None:
    """x has one; that of a bias is refused, not left out."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    fields, parts = stored("int4", 2, 6, 32, 16)
    held = {name: torch.from_numpy(part) for name, part in parts.items()}
    x = torch.randn(5, 32, dtype=torch.float32, requires_grad=True)
    y = bt.grouped_block_gemm(**held, **fields, x=x, offsets=torch.tensor([2, 4]))
    way = torch.randn(5, 6)
    y.backward(way)
    w = torch.from_numpy(bc.block_dequantize(**parts, **fields, element="float32"))
    want = torch.cat([way[:2] @ w[0], way[2:4] @ w[1], torch.zeros(1, 32)])
    torch.testing.assert_close(x.grad, want)
    bias = torch.zeros(2, 6, requires_grad=True)
    with pytest.raises(Exception, match="bias"):
        bt.grouped_block_gemm(**held, **fields, x=x, bias=bias, offsets=torch.tensor([2, 4])).sum().backward()


def test_nothing_gives_nothing() -> None:
    fields, parts = stored("int4", 2, 6, 32, 16)
    y = bc.grouped_block_gemm(**parts, **fields, x=np.zeros((0, 32), np.float32), offsets=np.zeros(2, np.int32))
    assert y.shape == (0, 6)
    none = {name: part[:0] for name, part in parts.items()}
    y = bc.grouped_block_gemm(**none, **fields, x=np.ones((3, 32), np.float32), offsets=np.zeros(0, np.int32))
    assert y.shape == (3, 6) and not y.any()


GOOD: dict[str, Any] = {
    "codes": np.zeros((2, 6, 16), np.uint8), "scales": np.ones((2, 6, 2), np.float32),
    "x": np.zeros((5, 32), np.float32), "offsets": np.array([2, 4]), "bias": np.zeros((2, 6), np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offsets": np.array([2.0, 4.0])}, "offsets.*int32"),
        ({"offsets": np.array([1, 2, 3, 4])}, r"offsets must have 2 items.*or 3.*got 4"),
        ({"offsets": np.array([[2], [4]])}, "offsets"),
        ({"codes": np.zeros((2, 6, 15), np.uint8)}, r"codes must have shape \(2, 6, 16\)"),
        ({"codes": np.zeros((6, 16), np.uint8)}, r"codes must be.*\[experts, n, bytes\]"),
        ({"codes": np.zeros((3, 6, 16), np.uint8)}, r"offsets must have 3 items.*got 2"),
        ({"codes": np.zeros((3, 6, 16), np.uint8), "offsets": np.array([2, 3, 4])}, "scales"),
        ({"scales": np.ones((2, 5, 2), np.float32)}, "scales"),
        ({"scales": np.ones((2, 6, 2), np.float64)}, "scale_element float64"),
        ({"bias": np.zeros(6, np.float32)}, "bias"),
        ({"x": np.zeros((5, 48), np.float32)}, r"codes must have shape \(2, 6, 24\)"),
        ({"x": np.zeros((5, 32))}, "float64"),
    ],
)
def test_bad_input_is_named(given: dict[str, Any], message: str) -> None:
    bc.grouped_block_gemm(**GOOD, kind="int4")
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=message):
        bc.grouped_block_gemm(**GOOD | given, kind="int4")
