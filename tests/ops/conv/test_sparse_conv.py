"""Sparse convolutions against dense ones of torch on a grid that holds the sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
import baracuda_py.torch as bct  # noqa: E402

CONV = {1: "conv1d", 2: "conv2d", 3: "conv3d"}
ABSENT = -(2**63)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], count: int, index: str = "int32") -> Any:
    """Different sites of two items, in any order."""
    grid = (2, *shape)
    places = rng.permutation(int(np.prod(grid)))[:count]
    return np.stack(np.unravel_index(places, grid), 1).astype(index)


def dense(x: Any, sites: Any, shape: tuple[int, ...]) -> Any:
    grid = torch.zeros((2, *shape, x.shape[1]), dtype=torch.float64)
    return grid.index_put(tuple(torch.tensor(sites.astype(np.int64)).T), x).movedim(-1, 1)


def at(y: Any, sites: Any) -> Any:
    return y.movedim(1, -1)[tuple(torch.tensor(np.asarray(sites).astype(np.int64)).T)]


def filters(w: Any) -> Any:
    """[outputs, channels, kernel...]."""
    return w.movedim(-1, 0).movedim(-1, 1)


@pytest.mark.parametrize("seed", range(10))
def test_any_window(seed: int) -> None:
    """Targets, table and product, and their gradients, with random sizes."""
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    shape = tuple(int(n) for n in rng.integers(4, 8, rank))
    kernel, stride, padding, dilation = (
        tuple(int(n) for n in rng.integers(low, high, rank))
        for low, high in ((1, 4), (1, 3), (0, 2), (1, 2 + seed % 2))
    )
    sites = drawn(rng, shape, int(rng.integers(1, 20)), "int64" if seed % 2 else "int32")
    window = {"spatial_shape": shape, "stride": stride, "padding": padding, "dilation": dilation}
    fits = [n + 2 * p - d * (k - 1) > 0 for n, k, p, d in zip(shape, kernel, padding, dilation, strict=True)]
    if not all(fits):
        with pytest.raises(InvalidProblemError, match="does not fit"):
            bc.sparse_conv_sites(sites, kernel, max_sites=4, **window)
        return
    targets, count = bc.sparse_conv_sites(sites, kernel, max_sites=300, **window)
    table = bc.sparse_conv_table(sites, targets, kernel, **window)
    x, w, b = (torch.tensor(rng.standard_normal(s), requires_grad=True)
               for s in ((len(sites), 3), (*kernel, 3, 2), (2,)))  # fmt: skip
    y = bct.sparse_conv(x, torch.tensor(table), w, b)
    whole = {"stride": stride, "padding": padding, "dilation": dilation}
    want = getattr(torch.nn.functional, CONV[rank])(dense(x, sites, shape), filters(w), None, **whole)
    known = int(count)
    ones = dense(torch.ones(len(sites), 1, dtype=torch.float64), sites, shape)
    met = getattr(torch.nn.functional, CONV[rank])(ones, torch.ones((1, 1, *kernel)).double(), **whole)
    expected = torch.nonzero(met[:, 0]).numpy()
    np.testing.assert_array_equal(targets[:known], expected)
    assert (targets[known:] == -1).all() and (table[known:] == ABSENT).all()
    torch.testing.assert_close(y[:known], at(want, expected) + b, rtol=1e-12, atol=1e-12)
    way = torch.tensor(rng.standard_normal(y.shape))
    way[known:] = 0
    got = torch.autograd.grad(y, (x, w, b), way)
    for one, other in zip(got, torch.autograd.grad(at(want, expected) + b, (x, w, b), way[:known]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)

    back = bc.sparse_conv_table(targets, sites, kernel, transposed=True, **window)
    up = torch.tensor(rng.standard_normal((*kernel, 2, 3)))
    rise = bct.sparse_conv(y.detach(), torch.tensor(back), up)
    extra = [n - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for n, o, s, p, d, k in
             zip(shape, want.shape[2:], stride, padding, dilation, kernel, strict=True)]  # fmt: skip
    turned = getattr(torch.nn.functional, CONV[rank].replace("conv", "conv_transpose"))
    full = torch.zeros_like(want)
    full = full.movedim(1, -1).index_put(tuple(torch.tensor(expected).T), y.detach()[:known]).movedim(-1, 1)
    if all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        lifted = turned(full, up.movedim(-2, 0).movedim(-1, 1), None, output_padding=extra, **whole)
        torch.testing.assert_close(rise, at(lifted, sites), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("element", ["float32", "float16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_submanifold(rank: int, element: str) -> None:
    rng = np.random.default_rng(rank)
    shape = (6, 5, 7)[:rank]
    sites = drawn(rng, shape, 9)
    x = rng.standard_normal((9, 4)).astype(element)
    w = rng.standard_normal((*(3, 5, 1)[:rank], 4, 2)).astype(element)
    dilation = (2, 1, 1)[:rank]
    y = bc.submanifold_conv(x, sites, w, spatial_shape=shape, dilation=dilation)
    want = getattr(torch.nn.functional, CONV[rank])(
        dense(torch.tensor(x.astype(np.float64)), sites, shape), filters(torch.tensor(w.astype(np.float64))),
        padding="same", dilation=dilation,
    )  # fmt: skip
    slack = 2e-2 if element == "float16" else 1e-5
    np.testing.assert_allclose(y.astype(np.float64), at(want, sites), rtol=4e-3, atol=slack)
    window = {"spatial_shape": shape, "dilation": dilation}
    padding = tuple(k // 2 * d for k, d in zip(w.shape, dilation, strict=False))
    table = bc.sparse_conv_table(sites, sites, w.shape[:-2], padding=padding, **window)
    assert bc.submanifold_conv(x, sites, w, table=table, **window).tobytes() == y.tobytes()


def test_sites_twice_and_outside() -> None:
    """Of two alike the first counts; what lies outside of the grid is none, as site and as target."""
    sites = np.array([[0, 2], [0, 2], [0, 9], [-1, 1], [0, -1], [1, 0]])
    table = bc.sparse_conv_table(sites, sites, 3, spatial_shape=(4,), padding=1)
    none = ABSENT
    # of a target outside of the grid no place counts unless it meets a site; one in no item meets none
    assert table.tolist() == [[none, 0, none]] * 2 + [[none] * 3] * 2 + [[none, none, none], [none, 5, none]]
    targets, count = bc.sparse_conv_sites(sites, 3, spatial_shape=(4,), max_sites=3, padding=1)
    assert int(count) == 5 and targets.tolist() == [[0, 1], [0, 2], [0, 3]]


def test_nothing() -> None:
    sites = np.zeros((0, 3), np.int32)
    targets, count = bc.sparse_conv_sites(sites, (3, 3), spatial_shape=(4, 5), max_sites=2)
    assert targets.tolist() == [[-1] * 3] * 2 and int(count) == 0
    table = bc.sparse_conv_table(sites, targets, (3, 3), spatial_shape=(4, 5))
    assert (table == ABSENT).all() and table.shape == (2, 9)
    y = bc.sparse_conv(np.zeros((0, 2), np.float32), table, np.ones((3, 3, 2, 4), np.float32), np.ones(4, np.float32))
    assert y.tolist() == [[1] * 4] * 2


@pytest.mark.parametrize(("wrong", "said"), [
    ({"spatial_shape": (4, 4)}, "sites must be int32 or int64"),
    ({"spatial_shape": (4, 4, 4, 4)}, "1 to 3 axes"),
    ({"kernel_size": (3, 3)}, "a number or 1 of them"),
    ({"kernel_size": 9}, "does not fit"),
    ({"stride": 0}, "stride"),
    ({"padding": -1}, "padding"),
])  # fmt: skip
def test_what_is_refused(wrong: dict[str, Any], said: str) -> None:
    given = {"kernel_size": 3, "spatial_shape": (4,), "max_sites": 3} | wrong
    with pytest.raises(InvalidProblemError, match=said):
        bc.sparse_conv_sites(np.zeros((2, 2), np.int32), **given)
    with pytest.raises(InvalidProblemError, match="sites must be int32"):
        bc.sparse_conv_sites(np.zeros((2, 2), np.float32), 3, spatial_shape=(4,), max_sites=3)
    x, table = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64)
    for w in (np.zeros((2, 3, 1), np.float32), np.zeros((3, 2, 1), np.float32), np.zeros((3, 3), np.float32)):
        with pytest.raises(InvalidProblemError, match="w must"):
            bc.sparse_conv(x, table, w)
    with pytest.raises(InvalidProblemError, match="odd sizes"):
        bc.submanifold_conv(x, np.zeros((2, 2), np.int32), np.zeros((2, 3, 1), np.float32), spatial_shape=(4,))
