"""Connected components against SciPy's labels, and the kernels' forests where tiles of 32 rows of 32 places meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from tests.call_emulated import call

ndimage = pytest.importorskip("scipy.ndimage")
HOPS = {4: 1, 8: 2, 6: 1, 18: 2, 26: 3}


def by_scipy(x: np.ndarray, rank: int, connectivity: int) -> tuple[np.ndarray, np.ndarray]:
    """Compact labels and counts, sample by sample."""
    structure = ndimage.generate_binary_structure(rank, HOPS[connectivity])
    samples = x.reshape(-1, *x.shape[-rank:])
    made = [ndimage.label(one != 0, structure) for one in samples]
    labels = np.stack([one for one, _ in made]).reshape(x.shape)
    return labels, np.array([n for _, n in made]).reshape(x.shape[:-rank])


def by_lowest(labels: np.ndarray, rank: int) -> np.ndarray:
    """Of compact labels those of the lowest places."""
    flat = labels.reshape(-1, int(np.prod(labels.shape[-rank:])))
    firsts = [np.array([0, *(1 + np.argmax(one == k) for k in range(1, one.max() + 1))]) for one in flat]
    return np.stack([first[one] for first, one in zip(firsts, flat, strict=True)]).reshape(labels.shape)


def spiral(size: int) -> np.ndarray:
    """One part that winds through every tile."""
    x, place, way, left = np.zeros((size, size), bool), np.array([0, 0]), np.array([0, 1]), 2
    while left:
        x[tuple(place)] = True
        ahead, behind = place + way, place + 2 * way
        free = all(0 <= n < size for n in ahead) and not (all(0 <= n < size for n in behind) and x[tuple(behind)])
        if free and not x[tuple(ahead)]:
            place, left = ahead, 2
        else:
            way, left = np.array([way[1], -way[0]]), left - 1
    return x


@pytest.mark.parametrize("connectivity", [4, 8, 6, 18, 26])
@pytest.mark.parametrize("density", [0.2, 0.45, 0.62])
def test_labels_are_scipys(connectivity: int, density: float) -> None:
    rank = 2 if connectivity in (4, 8) else 3
    shape = (2, 3, 37, 41) if rank == 2 else (2, 9, 11, 13)
    x = np.where(np.random.default_rng(1).random(shape) < density, -1.5, 0.0)
    want, counts = by_scipy(x, rank, connectivity)
    options: dict[str, Any] = {"rank": rank, "return_counts": True}
    labels, found = bc.connected_components(x, connectivity, compact=True, **options)
    np.testing.assert_array_equal(labels, want)
    np.testing.assert_array_equal(found, counts)
    lowest, found = bc.connected_components(x, connectivity, label_element="int64", **options)
    np.testing.assert_array_equal(lowest, by_lowest(want, rank))
    np.testing.assert_array_equal(found, counts)
    assert labels.dtype == np.int32 and lowest.dtype == np.int64 and found.dtype == np.int32


def test_the_default_has_the_fewest_neighbours() -> None:
    x = np.eye(4, dtype=np.uint8)
    np.testing.assert_array_equal(bc.connected_components(x, compact=True), np.diag([1, 2, 3, 4]))
    np.testing.assert_array_equal(bc.connected_components(x, 8), x)
    np.testing.assert_array_equal(bc.connected_components(x), np.diag([1, 6, 11, 16]))


def test_what_counts_as_there() -> None:
    x = np.array([[np.nan, 0.0, -0.0, 1e-45]], np.float32)
    np.testing.assert_array_equal(bc.connected_components(x, compact=True), [[1, 0, 0, 2]])


def test_empty_samples_have_no_parts() -> None:
    labels, counts = bc.connected_components(np.zeros((2, 0, 5), bool), return_counts=True)
    assert labels.shape == (2, 0, 5)
    np.testing.assert_array_equal(counts, [0, 0])


def test_wrong_problems_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r"connectivity must be one of \[4, 8\] for 2 axes"):
        bc.connected_components(np.zeros((3, 3)), 6)
    with pytest.raises(InvalidProblemError, match="rank"):
        bc.connected_components(np.zeros((3, 3)), rank=4)
    with pytest.raises(InvalidProblemError, match="3 axes of places or more"):
        bc.connected_components(np.zeros((3, 3)), rank=3)


@pytest.mark.parametrize("connectivity", [4, 8, 6, 18, 26])
@pytest.mark.parametrize("compact", [False, True])
def test_the_kernels_join_across_tiles(connectivity: int, compact: bool) -> None:
    rank, rng = 2 if connectivity in (4, 8) else 3, np.random.default_rng(connectivity)
    if rank == 2:
        x = rng.random((2, 67, 70)) < (0.55 if connectivity == 4 else 0.4)
        x[1] = spiral(70)[:67]
    else:
        x = rng.random((1, 10, 17, 66)) < {6: 0.3, 18: 0.14, 26: 0.1}[connectivity]
    desc = bc.ConnectedComponentsDescriptor(
        shape=x.shape, rank=rank, connectivity=connectivity, compact=compact, element="bool"
    )
    outputs = {"labels": np.full(x.shape, -7, np.int32), "counts": np.full(x.shape[:-rank], -7, np.int32)}
    made = call(bc.ConnectedComponentsPlan, desc, outputs, x=x)
    want, counts = by_scipy(x, rank, connectivity)
    np.testing.assert_array_equal(made["labels"], want if compact else by_lowest(want, rank))
    np.testing.assert_array_equal(made["counts"], counts)
