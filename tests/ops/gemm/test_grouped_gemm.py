"""grouped_gemm and grouped_inner_gemm: known values, what becomes of any offsets, and the same bits in any group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.gemm.grouped_gemm import GroupedGemmDescriptor, GroupedGemmPlan
from baracuda_py.ops.gemm.grouped_gemm_backward import GroupedGemmBackwardDescriptor, GroupedGemmBackwardPlan
from baracuda_py.ops.gemm.grouped_gemm_epilogue import GroupedGemmEpilogueDescriptor, GroupedGemmEpiloguePlan
from baracuda_py.ops.gemm.grouped_inner_gemm import GroupedInnerGemmDescriptor, GroupedInnerGemmPlan
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(0)
ELEMENTS = ("float16", "bfloat16", "float32", "float64")
OURS = pytest.mark.parametrize("place", ["emulator", pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
OFFSETS = {  # of three groups of ten rows → the rows of each
    "ends": ([3, 7, 10], [(0, 3), (3, 7), (7, 10)]),
    "empty": ([0, 0, 4], [(0, 0), (0, 0), (0, 4)]),
    "all in one": ([0, 10, 10], [(0, 0), (0, 10), (10, 10)]),
    "decreasing": ([6, 2, 8], [(0, 6), (6, 6), (6, 8)]),
    "outside": ([-5, 4, 99], [(0, 0), (0, 4), (4, 10)]),
    "far outside": ([-(2**31), 2**31 - 1, 0], [(0, 0), (0, 10), (10, 10)]),
    "from and to": ([2, 5, 5, 9], [(2, 5), (5, 5), (5, 9)]),
    "from and to, decreasing": ([4, 1, 12, 3], [(4, 4), (4, 10), (10, 10)]),
}


def small(*shape: int) -> Any:
    """Integers whose products and sums every element holds."""
    return RNG.integers(-2, 3, shape).astype(np.float64)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_rows_are_multiplied_by_the_matrix_of_their_group(place: str, offsets: str, index: str) -> None:
    bounds, groups = OFFSETS[offsets]
    a, b, bias = small(10, 8), small(3, 8, 5), small(3, 5)
    desc = GroupedGemmDescriptor(total=10, groups=3, n=5, k=8, num_offsets=len(bounds), element="bfloat16")
    got = call(GroupedGemmPlan, desc, ("y",), place, a=a, b=b, offsets=np.array(bounds, index), bias=bias)["y"]
    want = np.zeros((10, 5))
    for g, (begin, end) in enumerate(groups):
        want[begin:end] = a[begin:end] @ b[g] + bias[g]
    assert np.array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("offsets", OFFSETS)
def test_the_gradients_are_those_of_the_groups(place: str, offsets: str) -> None:
    bounds, groups = OFFSETS[offsets]
    a, b, dy = small(10, 8), small(3, 8, 5), small(10, 5)
    facts = {"total": 10, "groups": 3, "n": 5, "num_offsets": len(bounds), "element": "float32"}
    given = {"a": a, "b": b, "dy": dy, "offsets": np.array(bounds, np.int32)}
    desc = GroupedGemmBackwardDescriptor(k=8, **facts)
    got = call(GroupedGemmBackwardPlan, desc, ("da", "db", "dbias"), place, **given)
    da, db, dbias = np.zeros((10, 8)), np.zeros((3, 8, 5)), np.zeros((3, 5))
    for g, (begin, end) in enumerate(groups):
        da[begin:end] = dy[begin:end] @ b[g].T
        db[g] = a[begin:end].T @ dy[begin:end]
        dbias[g] = dy[begin:end].sum(0)
    for name, want in {"da": da, "db": db, "dbias": dbias}.items():
        assert np.array_equal(got[name], want), name
    inner = GroupedInnerGemmDescriptor(m=8, **facts)
    made = call(GroupedInnerGemmPlan, inner, ("y",), place, a=a.T, b=dy, offsets=given["offsets"])["y"]
    assert np.array_equal(made, db)


@pytest.mark.parametrize("element", ELEMENTS)
def test_many_groups_of_one_row_and_of_none(place: str, element: str) -> None:
    """More groups than a block looks at together, most of them empty."""
    groups, total = 700, 90
    ends = np.sort(RNG.integers(0, total, groups))
    a, b = small(total, 4), small(groups, 4, 3)
    desc = GroupedGemmDescriptor(total=total, groups=groups, n=3, k=4, element=element)
    got = call(GroupedGemmPlan, desc, ("y",), place, a=a, b=b, offsets=ends)["y"]
    of = np.searchsorted(ends, np.arange(total), side="right")
    want = [a[r] @ b[g] if g < groups else np.zeros(3) for r, g in enumerate(of)]
    assert np.array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("element", ["bfloat16", "float64"])
def test_the_epilogue_of_experts(place: str, element: str) -> None:
    """relu(s x w) (s x up) + residual, exact in small integers; rows of no group are zeros, residual or not."""
    a, b, up, bias, residual = small(10, 8), small(3, 8, 5), small(3, 8, 5), small(3, 5), small(10, 5)
    scale = np.array([0.5, 1, 2, 4, 1, 1, 0.5, 2, 1, 1], np.float32)
    desc = GroupedGemmEpilogueDescriptor(
        total=10, groups=3, n=5, k=8, num_offsets=4, activation="relu", element=element
    )  # fmt: skip
    given = {"a": a, "b": b, "up": up, "bias": bias, "residual": residual, "scale_a": scale}
    got = call(GroupedGemmEpiloguePlan, desc, ("y", "pre"), place, offsets=np.array([1, 4, 4, 8]), **given)
    want, pre = np.zeros((10, 5)), np.zeros((10, 5))
    for g, rows in ((0, slice(1, 4)), (2, slice(4, 8))):
        s = scale[rows, None].astype(float)
        pre[rows] = s * (a[rows] @ b[g]) + bias[g]
        want[rows] = np.maximum(pre[rows], 0) * (s * (a[rows] @ up[g])) + residual[rows]
    rounded = ElementKind.of(element).dtype
    assert np.array_equal(got["pre"], pre.astype(rounded)) and np.array_equal(got["y"], want.astype(rounded))


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_sums_of_several_pieces(place: str, element: str) -> None:
    a, b, ends = small(20, 1100), small(2, 1100, 24), np.array([5, 19])
    desc = GroupedGemmDescriptor(total=20, groups=2, n=24, k=1100, element=element)
    got = call(GroupedGemmPlan, desc, ("y",), place, a=a, b=b, offsets=ends)["y"]
    want = np.concatenate([a[:5] @ b[0], a[5:19] @ b[1], np.zeros((1, 24))])
    kind = ElementKind.of(element).dtype
    assert np.array_equal(got, want.astype(kind))
    rows, ends = small(1100, 24), np.array([3, 1095])
    inner = GroupedInnerGemmDescriptor(total=1100, groups=2, m=20, n=24, element=element)
    got = call(GroupedInnerGemmPlan, inner, ("y",), place, a=a, b=rows, offsets=ends)["y"]
    assert np.array_equal(got, np.stack([a[:, :3] @ rows[:3], a[:, 3:1095] @ rows[3:1095]]).astype(kind))


@OURS
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_row_has_the_same_bits_in_any_group(place: str, element: str) -> None:
    kind = ElementKind.of(element)
    a, b = (RNG.standard_normal(shape).astype(kind.dtype) for shape in ((150, 200), (2, 200, 72)))

    def product(rows: Any, ends: list[int]) -> Any:
        desc = GroupedGemmDescriptor(total=len(rows), groups=2, n=72, k=200, element=kind)
        return call(GroupedGemmPlan, desc, ("y",), place, a=rows, b=b, offsets=np.array(ends))["y"]

    whole = product(a, [130, 150])
    assert product(a[77:78], [1, 1]).tobytes() == whole[77:78].tobytes()
    assert product(a[100:150], [30, 50]).tobytes() == whole[100:].tobytes()
    assert product(a[129:], [1, 21]).tobytes() == whole[129:].tobytes()


@OURS
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_group_has_the_same_sums_alone(place: str, element: str) -> None:
    kind = ElementKind.of(element)
    a, b = (RNG.standard_normal(shape).astype(kind.dtype) for shape in ((20, 150), (150, 24)))

    def product(begin: int, end: int, ends: list[int]) -> Any:
        facts = {"total": end - begin, "groups": len(ends), "m": 20, "n": 24, "element": kind}
        given = {"a": a[:, begin:end], "b": b[begin:end], "offsets": np.array(ends)}
        return call(GroupedInnerGemmPlan, GroupedInnerGemmDescriptor(**facts), ("y",), place, **given)["y"]

    whole = product(0, 150, [13, 141, 150])
    assert product(13, 141, [128])[0].tobytes() == whole[1].tobytes()
    assert product(141, 150, [9])[0].tobytes() == whole[2].tobytes()


def test_grouped_mm_has_torchs_four_forms() -> None:
    ends = np.array([2, 2, 7], np.int32)
    groups = [slice(0, 2), slice(2, 2), slice(2, 7)]
    rows, weights, bias = small(7, 4), small(3, 4, 5), small(3, 5)
    want = np.concatenate([rows[s] @ weights[g] + bias[g] for g, s in enumerate(groups)])
    assert np.array_equal(bc.grouped_mm(rows, weights, ends, bias), want)
    left, columns = small(3, 6, 4), small(4, 7)
    want = np.concatenate([left[g] @ columns[:, s] for g, s in enumerate(groups)], 1)
    assert np.array_equal(bc.grouped_mm(left, columns, ends), want)
    out = np.empty((6, 7))
    assert bc.grouped_mm(left, columns, ends, out=out) is out and np.array_equal(out, want)
    a, b = small(6, 7), small(7, 5)
    assert np.array_equal(bc.grouped_mm(a, b, ends), [a[:, s] @ b[s] for s in groups])
    assert np.array_equal(bc.grouped_mm(left, weights), left @ weights)


def test_ragged_dot_takes_sizes() -> None:
    a, b = small(8, 4), small(3, 4, 5)
    got = bc.ragged_dot(a, b, np.array([3, 0, 4], np.int32))
    assert np.array_equal(got, np.concatenate([a[:3] @ b[0], a[3:7] @ b[2], np.zeros((1, 5))]))


def test_wrong_operands_are_named() -> None:
    a, b, ends = np.ones((4, 3)), np.ones((2, 3, 5)), np.array([2, 4])
    with pytest.raises(InvalidProblemError, match=r"offsets must have 2 items.*or 3.*got 4"):
        bc.grouped_gemm(a, b, np.array([0, 1, 2, 4]))
    with pytest.raises(InvalidProblemError, match="offsets must be given"):
        bc.grouped_mm(a, b)
    with pytest.raises(InvalidProblemError, match="offsets must have none"):
        bc.grouped_mm(b, b.transpose(0, 2, 1), ends)
    with pytest.raises(InvalidProblemError, match="bias"):
        bc.grouped_mm(a.T, a, ends, bias=np.ones((2, 3)))
    with pytest.raises(InvalidProblemError, match=r"b must have shape"):
        bc.grouped_gemm(a, np.ones((2, 4, 5)), ends)


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_gradients_in_torch(element: str) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    dtype = getattr(torch, element)
    made = [torch.tensor(RNG.standard_normal(s), dtype=dtype, requires_grad=True) for s in ((9, 4), (3, 4, 5), (3, 5))]
    ends = torch.tensor([4, 4, 8])
    way = torch.tensor(RNG.standard_normal((9, 5)), dtype=dtype)
    got = torch.autograd.grad(bt.grouped_gemm(made[0], made[1], ends, made[2]), made, way)
    parts = [made[0][s] @ made[1][g] + made[2][g] for g, s in enumerate((slice(0, 4), slice(4, 4), slice(4, 8)))]
    want = torch.autograd.grad(torch.cat([*parts, torch.zeros(1, 5, dtype=dtype)]), made, way)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_few_blocks_walk_many_large_tiles(element: str, turned: bool) -> None:
    """On a device of one multiprocessor, where a block has tiles of several groups, and rows of none."""
    kind = ElementKind.of(element)
    total, k, n, ends = 300, 40, 136, np.array([3, 130, 131, 290])
    a, b = small(total, k).astype(kind.dtype), small(4, k, n).astype(kind.dtype)
    held = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1) if turned else b
    y = np.full((total, n), np.nan, kind.dtype)
    desc = GroupedGemmDescriptor(total=total, groups=2, n=n, k=k, num_offsets=3, element=kind)
    device = emulated_device(9.0, 1)
    with emulating():
        plan = GroupedGemmPlan.select(desc, device=device)
        views = (pointer_view(x) for x in (a, held[1:3], ends[:3], y))
        plan.run(plan.args(**dict(zip(("a", "b", "offsets", "y"), views, strict=True))))
    want = np.zeros((total, n))
    want[3:130], want[130:131] = a[3:130].astype(float) @ b[1], a[130:131].astype(float) @ b[2]
    assert np.array_equal(y.astype(float), want)
