"""The merge of axes: what it answers is checked against the offsets of every element, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.schedules.geometry import Axes, Merged
from baracuda_py.schedules.map import in_tiles

ELEMENTS = (ElementKind.F16, ElementKind.F32, ElementKind.F64, ElementKind.I8)


@st.composite
def problems(draw):
    """Views of one shape (permuted, padded, reversed, broadcast), some absent; a split of the axes into two groups."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), max_size=4)))
    axes = draw(st.permutations(range(len(shape))))
    cut = draw(st.integers(0, len(shape)))
    groups = (tuple(sorted(axes[:cut])), tuple(sorted(axes[cut:])))
    free = draw(st.sampled_from([(), (0,), (1,), (0, 1)]))

    def view(axes):
        own = [1 if draw(st.integers(0, 5)) == 0 else shape[a] for a in axes]
        strides, step = [0] * len(axes), 1
        for axis in draw(st.sampled_from([list(reversed(range(len(axes)))), draw(st.permutations(range(len(axes))))])):
            strides[axis] = step * draw(st.sampled_from([1, 1, 1, 1, 2, -1]))
            step = abs(strides[axis]) * (own[axis] + draw(st.sampled_from([0, 0, 0, 1, 8])))
        kind = draw(st.sampled_from(ELEMENTS))
        pointer = 4096 + draw(st.sampled_from([0, 0, 16, 8, 4, 2])) // kind.itemsize * kind.itemsize
        return View(pointer, tuple(own), tuple(strides), kind).broadcast_to(tuple(shape[a] for a in axes))

    full = [view(range(len(shape))), *(draw(st.sampled_from([None, view(range(len(shape)))])) for _ in range(2))]
    outer = [view(groups[0])]
    return shape, groups, free, full, outer


def _walk(found: Merged, operand: int) -> list[tuple[int, int]]:
    """(offset along the outer group, offset along the last group) of every element, in the merged order."""

    def offsets(axes: Axes) -> list[int]:
        return [int(np.dot(at, axes.strides[operand])) if at else 0 for at in np.ndindex(*axes.shape)]

    return list(itertools.product(offsets(found.groups[0]), offsets(found.groups[1])))


@given(problems())
@settings(max_examples=300, deadline=None)
def test_what_it_says_holds_for_every_element(problem):
    shape, groups, free, full, outer = problem
    found = Merged.of(full, groups, outer=outer, free=free)
    order = (*groups[0], *groups[1])
    wanted = []
    for at in np.ndindex(*(shape[a] for a in order)):
        place = dict(zip(order, at, strict=True))
        offset = [sum(place[a] * s for a, s in enumerate(v.strides)) for v in full if v is not None]
        kept = [sum(i * s for i, s in zip(at, v.strides, strict=False)) for v in outer]
        wanted.append((*offset, *kept))
    walks = [_walk(found, i) for i, v in enumerate((*full, *outer)) if v is not None]
    got = [(*(a + b for a, b in walk[:-1]), walk[-1][0] + walk[-1][1]) for walk in zip(*walks, strict=True)]
    assert sorted(got) == sorted(wanted)
    if not free:
        assert got == wanted  # the order of elements is kept

    count = int(np.prod(shape, dtype=int))
    assert found.groups[0].count * found.groups[1].count == count
    rows = found.groups[0].count
    given = [v for v in full if v is not None]
    for view, walk in zip(given, walks[:-1], strict=True):
        flat = [a + b for a, b in walk]
        if found.dense:
            assert flat == list(range(count))
        if found.run:
            assert all(b == k for (_, b), k in zip(walk, itertools.cycle(range(count // rows)), strict=False))
        for width in (2, 4, 8):
            if found.run and found.access(width):
                starts = {a for a, _ in walk}
                size = view.element.itemsize
                assert all((view.ptr + a * size) % min(width * size, 16) == 0 for a in starts)
    if all(flat == list(range(count)) for flat in ([a + b for a, b in w] for w in walks[:-1])):
        assert found.dense and found.run and found.inner
    largest = max(abs(n) for walk in walks for a, b in walk for n in (a, b, a + b))
    assert found.reach >= max(count, largest)


def test_transposed_alike_is_dense_only_where_the_order_is_free():
    view = View(0, (64, 32), (1, 64), ElementKind.F16)
    assert not Merged.of((view, view), (range(2),)).dense
    assert Merged.of((view, None, view), (range(2),), free=(0,)).dense


def test_the_widest_access_follows_pointers_and_pitches():
    def rows(pitch: int, ptr: int = 0) -> int:
        view = View(ptr, (8, 64), (pitch, 1), ElementKind.F16)
        return Merged.of((view,), ((0,), (1,))).vector()

    assert [rows(64), rows(68), rows(66), rows(65), rows(64, 8), rows(64, 2)] == [8, 4, 2, 1, 4, 1]


def test_layout_classes():
    def layout(strides: tuple[int, int]) -> str:
        found = Merged.of((View(0, (8, 64), strides, ElementKind.F32),), ((0,), (1,)))
        return found.layout(found.run)

    assert [layout((64, 1)), layout((65, 1)), layout((0, 1)), layout((1, 8))] == [
        "contiguous", "inner_contiguous", "inner_contiguous", "strided",
    ]  # fmt: skip


def test_more_than_eight_axes_a_group_are_refused():
    shape = (2,) * 10
    sparse = View(0, shape, tuple(3**k for k in range(10)), ElementKind.F32)
    assert "8 axes" in Merged.of((sparse,), (range(10),))
    assert not isinstance(Merged.of((sparse,), (range(5), range(5, 10))), str)


def test_padded_fields():
    axes = Merged.of((View(0, (4, 6), dense_strides((4, 6)), ElementKind.F32), None), (range(2),)).groups[0]
    assert axes.params() == {"shape": [24, *[0] * 7], "strides": [[1, *[0] * 7], [0] * 8], "rank": 1}
    assert set(axes.params("a", "b", "c")) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("shape", "strides", "itemsize", "tiles"),
    [
        ((32, 64), ((64, 1), (1, 32)), 4, (4, 8, 8, 8)),
        ((32, 64), ((64, 1), (1, 32)), 2, (2, 4, 16, 16)),
        ((3, 16, 8, 24), ((3072, 192, 24, 1), (1, 3, 1152, 48)), 4, None),  # 3 falls into no tiles
        ((16, 3, 8), ((24, 8, 1), (1, 128, 16)), 4, (2, 3, 1, 8, 8)),
        ((32, 64), ((64, 1), (64, 1)), 4, None),  # contiguous along the same axis
        ((32, 60), ((60, 1), (1, 32)), 4, None),
    ],
)
def test_tiles_have_the_same_elements(shape, strides, itemsize, tiles):
    def places(axes):
        return {tuple(np.dot(at, s) for s in axes.strides) for at in np.ndindex(*axes.shape)}

    found = in_tiles(whole := Axes(shape, strides), itemsize)
    assert found.shape == (tiles or shape)
    assert places(found) == places(whole)
