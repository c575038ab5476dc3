"""What ops with an index for each of several axes share: descriptor, values, formulas, geometry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import Descriptor, ElementKind, Geometry, Plan, element, extents, integer, shapes
from ...core.checked import derived
from ...core.descriptor import axes as axes_field
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import Kernel, Problem, Step, aligned
from ...schedules.keys import KEYS, along, position_kernel, position_params, position_step
from ...schedules.scatter import scatter_atomic_geometry, scatter_geometry
from ...schedules.scatter_places import Source, Tokens
from .indexed import MOVED, broadcast_together, from_start, located, mistaken, random_positions


def _place(desc: Any) -> int:
    """NumPy's rule: where the first of axes that are neighbours stood, else in front."""
    axes = sorted(desc.axes)
    neighbours = axes == list(range(axes[0], axes[0] + len(axes))) if axes else False
    return axes[0] - desc.batch if neighbours else 0


@dataclass(frozen=True, kw_only=True)
class KeyedDescriptor(Descriptor):
    """x has shape `shape`; axes `axes` of it have an index each, of shapes that broadcast together to `index_shape`.

    In y the axes of the indices stand together before number `place` of the axes that are left. batch: so many leading
    axes x and the indices share, and y has them first.
    """

    shape: tuple[int, ...] = extents()
    index_shapes: tuple[tuple[int, ...], ...] = shapes()
    axes: tuple[int, ...] = axes_field(ordered=True)
    batch: int = integer(0, minimum=0)
    place: int = integer(derived(_place), minimum=0)
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """An index for each axis, indices that broadcast, a place that exists."""
        if len(self.axes) != len(self.index_shapes) or not 1 <= len(self.axes) <= KEYS:
            raise InvalidProblemError(
                f"axes must name an axis for each of the indices, 1 to {KEYS}; got {self.axes} for "
                f"{len(self.index_shapes)} indices"
            )
        if self.batch > min(self.axes):
            raise InvalidProblemError(f"batch must be at most {min(self.axes)}, the first axis indexed: {self.batch}")
        if self.index_shape[: self.batch] != self.shape[: self.batch]:
            raise InvalidProblemError(
                f"indices must begin with the axes {self.shape[: self.batch]} of batch, got shape {self.index_shape}"
            )
        if self.place > len(self.rest):
            raise InvalidProblemError(f"place must be at most {len(self.rest)}, the axes left; got {self.place}")

    @cached_property
    def index_shape(self) -> Shape:
        """The shape that the indices broadcast to."""
        return broadcast_together(self.index_shapes)

    @cached_property
    def rest(self) -> tuple[int, ...]:
        """The axes of x behind those of the batch that have no index."""
        return tuple(a for a in range(self.batch, len(self.shape)) if a not in self.axes)

    @cached_property
    def out_axes(self) -> tuple[int | None, ...]:
        """For each axis of y the axis of x that it is, or None for those of the indices."""
        own = (None,) * (len(self.index_shape) - self.batch)
        return (*range(self.batch), *self.rest[: self.place], *own, *self.rest[self.place :])

    @cached_property
    def out_shape(self) -> Shape:
        """The shape of y."""
        own = iter(self.index_shape[self.batch :])
        return tuple(next(own) if a is None else self.shape[a] for a in self.out_axes)

    @cached_property
    def key_axes(self) -> tuple[int | None, ...]:
        """For each axis of y the axis of the indices that it is, or None."""
        own = iter(range(self.batch, len(self.index_shape)))
        return tuple(next(own) if a is None else a if a < self.batch else None for a in self.out_axes)


class Keyed(Plan):
    """Base of the plans with an index for each of some axes."""

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Indices of the range of their axes."""
        rng = np.random.default_rng(len(desc.shape) + sum(desc.index_shape))
        arrays["indices"] = [
            random_positions(rng, desc.shape[a], one.shape).astype(one.dtype)
            for a, one in zip(desc.axes, arrays["indices"], strict=True)
        ]

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        for a, index in zip(desc.axes, arrays["indices"], strict=True):
            if mistaken(index, desc.shape[a]):
                return f"an index of axis {a} must lie in [{-desc.shape[a]}, {desc.shape[a]})"
        return None


def known_places(desc: Any, indices: Any) -> tuple[tuple[Any, ...], Any]:
    """(an index of each axis of the batch and each indexed one, where all of them name something), broadcast."""
    found = [located(index, desc.shape[a]) for a, index in zip(desc.axes, indices, strict=True)]
    lead = np.indices(desc.index_shape, sparse=True)[: desc.batch] if desc.batch else ()
    places = [np.broadcast_to(one, desc.index_shape) for one in (*lead, *(at for at, _ in found))]
    known = np.ones(desc.index_shape, bool)
    for _, one in found:
        known = known & one
    return tuple(places), known


def fronted(desc: Any, x: Any) -> Any:
    """x with the axes of the batch first, then the indexed ones, then the rest (a view)."""
    return np.moveaxis(x, desc.axes, range(desc.batch, desc.batch + len(desc.axes)))


def placed(desc: Any, y: Any, back: bool = False) -> Any:
    """y with the axes of the indices in their place, of one that has them behind those of the batch; or back."""
    first, own = desc.batch, len(desc.index_shape) - desc.batch
    here, there = range(first, first + own), range(first + desc.place, first + desc.place + own)
    return np.moveaxis(y, *((there, here) if back else (here, there)))


def picked(desc: Any, x: Any, indices: Any) -> Any:
    """NumPy's advanced indexing; 0 where an index names nothing."""
    places, known = known_places(desc, indices)
    shape = (*desc.index_shape, *(desc.shape[a] for a in desc.rest))
    y = np.zeros(shape, x.dtype)
    if known.any():
        y[known] = fronted(desc, x)[tuple(place[known] for place in places)]
    return placed(desc, y)


def tokens_put(desc: Any, y: Any, indices: Any, values: Any, combine: Any) -> Any:
    """y with the tokens of values written, or combined, in the row-major order of the indices (NumPy, in place)."""
    places, known = known_places(desc, indices)
    front, tokens = fronted(desc, y), placed(desc, values, back=True)[known]
    at = tuple(place[known] for place in places)
    if combine is not None:
        combine.at(front, at, tokens)
    else:
        for one, token in zip(zip(*at, strict=True), tokens, strict=True):
            front[one] = token
    return y


# ---- geometry --------------------------------------------------------------------------------------------------------


def keys_along(desc: Any, indices: tuple[View, ...], shape: Shape) -> list[View]:
    """The indices along the axes of y."""
    return [along(one.broadcast_to(desc.index_shape), shape, desc.key_axes) for one in indices]


def put_position_kernel(name: str) -> Kernel:
    """The kernel that makes positions of the indices, in the workspace."""
    return position_kernel(position_params(name), "indexing/index.cu")


@dataclass(frozen=True)
class Put:
    """What is scattered to the positions that the indices make: the step that makes them, and the tokens there."""

    desc: Any
    step: Step | None
    index: View
    names: Mapping[str, Any]
    start: int

    @classmethod
    def of(cls, desc: Any, indices: tuple[View, ...], names: Mapping[str, Any]) -> Put | str:
        """Positions in the first bytes of the workspace; a string says why not."""
        shape = desc.index_shape
        index = View(0, shape, dense_strides(shape), ElementKind.I64)
        if not index.size:
            return cls(desc, None, index, {**names, "index": "@null"}, 0)
        extents = [desc.shape[a] for a in desc.axes]
        keys = [one.broadcast_to(shape) for one in indices]
        step = position_step(index, keys, extents, dense_strides(extents), ("@workspace", 0))
        if isinstance(step, str):
            return step
        return cls(desc, step, index, {**names, "index": ("@workspace", 0)}, aligned(index.nbytes))

    @property
    def before(self) -> tuple[Step, ...]:
        """The steps before the scatter."""
        return () if self.step is None else (self.step,)

    def tokens(self, src: View | None) -> Tokens:
        """The tokens of src, or none to read, along the axes of y."""
        desc, batch = self.desc, self.desc.batch
        kept = {a: n for n, a in enumerate(desc.out_axes) if a is not None}
        index_strides = [self.index.strides[a] if a < batch else 0 for a in range(len(desc.shape))]
        own = self.index.strides[batch:]
        if src is None:
            return Tokens(None, self.index, (), index_strides, desc.shape, desc.index_shape[batch:], (own, own))
        src_strides = [src.strides[kept[a]] if a in kept else 0 for a in range(len(desc.shape))]
        steps = [src.strides[n] for n, a in enumerate(desc.out_axes) if a is None]
        return Tokens(src, self.index, src_strides, index_strides, desc.shape, desc.index_shape[batch:], (own, steps))

    def source(self, src: View) -> Source:
        """src, or its gradient, for kernels over its elements."""
        return Source(src, along(self.index, src.shape, self.desc.key_axes), self.desc.out_axes)


def put_geometry(
    p: Problem, y: View, x: View | None, src: View, indices: tuple[View, ...], names: Mapping[str, Any], *,
    fresh: bool = False, moves: bool = False, atomic: bool = False,
) -> Geometry | str:  # fmt: skip
    """The launches of a scatter of src; see `scatter_geometry`."""
    desc = p.desc
    put = Put.of(desc, indices, names)
    if isinstance(put, str):
        return put
    tokens, rest = put.tokens(src), (put.before, put.start)
    if atomic:
        return scatter_atomic_geometry(y, x, desc.axes, tokens, put.source(src), put.names, *rest)
    return scatter_geometry(p, y, x, desc.axes, tokens, put.names, fresh, moves, *rest)


# ---- tests and benchmarks ------------------------------------------------------------------------------------------


def places_in_torch(torch: Any, desc: Any, indices: Any) -> tuple[Any, ...]:
    """As `known_places`, of indices in range."""
    found = [from_start(torch, index, desc.shape[a]) for a, index in zip(desc.axes, indices, strict=True)]
    rank = len(desc.index_shape)
    lead = [torch.arange(n).reshape(*(-1 if a == b else 1 for b in range(rank)))
            for a, n in enumerate(desc.index_shape[: desc.batch])]  # fmt: skip
    return tuple(one.expand(desc.index_shape) for one in (*lead, *found))


def fronted_in_torch(torch: Any, desc: Any, x: Any) -> Any:
    """As `fronted`."""
    return torch.movedim(x, desc.axes, tuple(range(desc.batch, desc.batch + len(desc.axes))))


def placed_in_torch(torch: Any, desc: Any, y: Any, back: bool = False) -> Any:
    """As `placed`."""
    first, own = desc.batch, len(desc.index_shape) - desc.batch
    here, there = tuple(range(first, first + own)), tuple(range(first + desc.place, first + desc.place + own))
    return torch.movedim(y, *((there, here) if back else (here, there))) if own else y


def known_keys(torch: Any, desc: Any) -> Mapping[str, Any]:
    """Random indices in range, as torch wants them."""
    pairs = zip(desc.axes, desc.index_shapes, strict=True)
    return {"indices": [torch.randint(0, desc.shape[a], shape) for a, shape in pairs]}


def distinct_keys(torch: Any, desc: Any) -> Mapping[str, Any]:
    """Random places that are all different, so that it does not matter which of two is set last."""
    extents = [desc.shape[a] for a in desc.axes]
    (shape,) = set(desc.index_shapes)
    places = torch.randperm(math.prod(extents))[: math.prod(shape)].reshape(shape)
    found: list[Any] = []
    for extent in reversed(extents):
        found.insert(0, places % extent)
        places = places // extent
    return {"indices": found}


def index_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields: one to three indices of neighbours or others, now and then a batch, or many keys."""
    if draw.integer(0, 7) == 0:
        count = draw.choice((4, 8))
        many = ((3, 1), (4,), (3, 4), ())
        shapes = tuple(many[k % 4] for k in range(count))
        return {
            "shape": (2, 3) * (count // 2),
            "index_shapes": shapes,
            "axes": tuple(range(count)),
            "element": draw.element,
        }
    if draw.rarely():  # more tokens of a line than a block holds
        extent = draw.choice((9, 66000))
        return {"shape": (extent,), "index_shapes": ((8200,),), "axes": (0,), "element": draw.element}
    batch = draw.choice((0, 0, 1))
    last = draw.sizes(1, 16, 3)  # rows that are moved whole
    shape = (*draw.shape(3, 3, 1, 7), last)
    axes = draw.choice(((1,), (1, 2), (1, 3), (2, 1), (3,), *(() if batch else ((0, 1), (0, 2), (0, 1, 2)))))
    own = draw.choice(((), (5,), (3, 4), (0,), (70,)))
    index = tuple(own if k == 0 else tuple(1 if draw.flag() else n for n in own) for k in range(len(axes)))
    index = tuple((*shape[:batch], *one) for one in index)
    left = len(shape) - batch - len(axes)
    place = draw.integer(0, left) if draw.flag() else None
    return {
        "shape": shape, "index_shapes": index, "axes": axes, "batch": batch, "place": place, "element": draw.element
    }  # fmt: skip
