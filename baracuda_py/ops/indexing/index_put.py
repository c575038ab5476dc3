"""index_put: values written, or combined, at positions that several index arrays tell, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Problem, Variant, Vjp, choice, element, flag, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import COMPILED, EAGER, IN_ORDER, Benchmark
from ...core.errors import UnsupportedError
from ...core.tensor import dense_strides
from ...schedules.scatter import gradient_kernels, scatter_backward_geometry, scatter_params
from .indexed import ELEMENTS, SUMMED
from .keyed import (
    Keyed, KeyedDescriptor, Put, distinct_keys, fronted_in_torch, index_case, known_keys, picked, placed_in_torch,
    places_in_torch, put_geometry, put_position_kernel, tokens_put,
)  # fmt: skip
from .scatter import ScatterKind, reduced, refuse_fresh_set, scatter_rows, scattered_in_torch


@dataclass(frozen=True, kw_only=True)
class IndexPutDescriptor(KeyedDescriptor):
    """x and y have shape `shape`; values have the shape of what an index would pick.

    include_self: where False, an element that a token names is made of its tokens alone; of set it is so.
    """

    kind: ScatterKind = choice(ScatterKind)
    include_self: bool = flag(True)

    def validate(self) -> None:
        KeyedDescriptor.validate(self)
        refuse_fresh_set(self)


@dataclass(slots=True, kw_only=True)
class IndexPutArgs(Args):
    """Any strides; y may be x. Each index is int64 or int32."""

    x: Array = operand("*shape")
    indices: list[Array] = operand(many="index_shapes", element=ELEMENTS)
    values: Array = operand("*out_shape")
    y: Array = output("*shape", inplace=("x",))


def reference(desc: IndexPutDescriptor, *, x: Any, indices: Any, values: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in (means of integers in 64 bits): token by token."""

    def put(y: Any, src: Any, combine: Any) -> Any:
        return tokens_put(desc, y, indices, src, combine)

    return {"y": reduced(desc.kind, desc.include_self, x, values, put)}


PARAMS = scatter_params("IndexPutParams")


def _geometry(p: Problem, atomic: bool = False) -> Geometry | str:
    desc = p.desc
    moves = desc.kind is ScatterKind.SET
    if atomic and not desc.include_self:
        return "sums without what was there are not made by atomics"
    return put_geometry(
        p, p.y, p.x, p.values, p.indices, {"src": "values"}, fresh=not desc.include_self, moves=moves, atomic=atomic
    )


def _rows_in_torch(desc: Any, front: Any, places: Any) -> Any:
    """The rows [tokens, rest] of `front`, whose first axes are those of the places, that elements of tokens go to."""
    strides = dense_strides(front.shape[: len(places)])
    position = sum(place * step for place, step in zip(places, strides, strict=True))
    return position.reshape(-1, 1).expand(-1, math.prod(desc.shape[a] for a in desc.rest))


def in_torch(torch: Any, desc: IndexPutDescriptor, *, x: Any, indices: Any, values: Any) -> Any:
    """torch's scatters of rows: what its index_put does, of all kinds and in the order of the tokens."""
    y, tokens = x.clone(), placed_in_torch(torch, desc, values, back=True)
    front, places = fronted_in_torch(torch, desc, y), places_in_torch(torch, desc, indices)
    rows = _rows_in_torch(desc, front, places)
    flat = front.reshape(math.prod(front.shape[: len(places)]), rows.shape[1])
    front[...] = scattered_in_torch(torch, desc, flat, 0, rows, tokens.reshape(rows.shape)).reshape(front.shape)
    return y


class IndexPutPlan(Keyed):
    """y = x, then y[i, :, j, …] = f(itself, values) with an index for each of `axes` (torch.index_put, and reductions).

    The indices broadcast together, and values have the shape of x[i, :, j, …]. f is the value itself (set: of several
    tokens that name one element the last one in the row-major order of the indices wins), the sum (add), product
    (prod), the larger (amax) or smaller (amin), or the mean, as in `ScatterPlan`: in the order of the tokens, in the
    accumulator, rounded once; with `PlanPreference(deterministic=False)` sums of f32 and f64 are made by atomics.
    Negative indices count from the end; where one lies outside [-extent, extent) of its axis nothing is written.
    """

    op = "indexing.index_put"
    kinds = ScatterKind
    descriptor = IndexPutDescriptor
    args = IndexPutArgs
    reference = staticmethod(reference)
    vjp = Vjp("IndexPutBackwardPlan", grads={"x": "dx", "values": "dvalues"}, kinds=(ScatterKind.SET, ScatterKind.ADD))
    value_policy = "an index outside [-extent, extent) of its axis writes nothing"
    variants = scatter_rows(_geometry, lambda p: _geometry(p, True), PARAMS, put_position_kernel("IndexPutPositions"))
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{kind} 65536 rows to [256, 256, 1024] {said}", kind=kind, shape=(256, 256, 1024),
            index_shapes=((65536,), (65536,)), axes=(0, 1), element=element, any_order=said.endswith("any order"),
            make=distinct_keys if kind == "set" else known_keys,
            peers=(EAGER, COMPILED, IN_ORDER) if kind == "add" else (EAGER, COMPILED),
        )
        for kind, element, said in (
            ("set", "bfloat16", "bf16"), ("add", "bfloat16", "bf16"), ("add", "float32", "f32"),
            ("add", "float32", "f32, any order"),
        )
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> IndexPutDescriptor:
        own = draw.flag() or draw.kind in BACKWARD_KINDS  # whose gradients are of these
        return IndexPutDescriptor(kind=draw.kind, include_self=own, **index_case(draw))


BACKWARD_KINDS = (ScatterKind.SET, ScatterKind.ADD)


@dataclass(frozen=True, kw_only=True)
class IndexPutBackwardDescriptor(IndexPutDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)

    def validate(self) -> None:
        """As the forward, for kinds with a gradient."""
        if self.kind not in BACKWARD_KINDS or not self.include_self:
            said = "without include_self" if not self.include_self else f"for kind {self.kind.value}"
            raise UnsupportedError(f"index_put has no gradient {said}; scatter_reduce has one")
        IndexPutDescriptor.validate(self)


@dataclass(slots=True, kw_only=True)
class IndexPutBackwardArgs(Args):
    """Any strides; dx may be dy. A None gradient costs nothing."""

    dy: Array = operand("*shape")
    indices: list[Array] = operand(many="index_shapes", element=ELEMENTS)
    dx: Array | None = output("*shape", optional=True, inplace=("dy",))
    dvalues: Array | None = output("*out_shape", optional=True)


def backward_reference(
    desc: IndexPutBackwardDescriptor, *, dy: Any, indices: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy on the values: the tokens are numbered, and of several that name one element all count, or the last."""
    grads: dict[str, Any] = {"dx": np.array(dy), "dvalues": picked(desc, dy, indices)}
    if desc.kind is ScatterKind.SET:
        numbers = np.arange(int(np.prod(desc.out_shape))).reshape(desc.out_shape)
        last = tokens_put(desc, np.full(desc.shape, -1), indices, numbers, None)
        grads["dx"] = np.where(last >= 0, dy.dtype.type(0), dy)
        grads["dvalues"] = np.where(picked(desc, last, indices) == numbers, grads["dvalues"], dy.dtype.type(0))
    return {name: grads[name] for name in wanted}


BACKWARD_PARAMS = scatter_params("IndexPutBackwardParams")


def _backward_geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    put = Put.of(desc, p.indices, {})
    if isinstance(put, str):
        return put
    source = None if p.dvalues is None else put.source(p.dvalues)
    last = desc.kind is ScatterKind.SET
    return scatter_backward_geometry(
        p.dx, source, p.dy, desc.axes, put.tokens(None), last, put.names, "dvalues", put.before, put.start
    )


def backward_in_torch(torch: Any, desc: IndexPutBackwardDescriptor, *, dy: Any, indices: Any, wanted: set[str]) -> Any:
    """Advanced indexing for the values, and for set zeros put; of tokens in one place the largest number is left."""
    places = places_in_torch(torch, desc, indices)
    front = fronted_in_torch(torch, desc, dy.clone())
    tokens = front[places]
    dx = dy
    if desc.kind is ScatterKind.SET:
        numbers, rows = torch.arange(tokens.numel()).reshape(tokens.shape), _rows_in_torch(desc, front, places)
        left = torch.full((math.prod(front.shape[: len(places)]), rows.shape[1]), -1)
        left = left.scatter_reduce(0, rows, numbers.reshape(rows.shape), "amax").reshape(front.shape)
        tokens = torch.where(left[places] == numbers, tokens, 0)
        dx = dy.clone()
        fronted_in_torch(torch, desc, dx)[left >= 0] = 0
    grads = {"dx": dx, "dvalues": placed_in_torch(torch, desc, tokens)}
    return {name: grads[name] for name in wanted}


class IndexPutBackwardPlan(Keyed):
    """dx = dy, and dvalues = dy[i, :, j, …]; for set only of the token that won, and dx is 0 there.

    What an index out of range did not write has the gradient 0. torch's gradient of index_put counts every token.
    """

    op = "indexing.index_put_backward"
    direction = "backward"
    kinds = ScatterKind
    descriptor = IndexPutBackwardDescriptor
    args = IndexPutBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = "what an index outside [-extent, extent) of its axis did not write has the gradient 0"
    variants = (
        Variant(
            "sorted", _backward_geometry, "indexing/scatter.cu",
            (
                *gradient_kernels(BACKWARD_PARAMS),
                put_position_kernel("IndexPutBackwardPositions"),
            ),
            elements=SUMMED, kinds=BACKWARD_KINDS, guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (
        Benchmark(
            "set 65536 rows of [256, 256, 1024] bf16", kind="set", shape=(256, 256, 1024),
            index_shapes=((65536,), (65536,)), axes=(0, 1), element="bfloat16", also=("dx", "dvalues"),
            make=distinct_keys,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> IndexPutBackwardDescriptor:
        return IndexPutBackwardDescriptor(kind=draw.kind, **index_case(draw))


index_put_backward = functional(IndexPutBackwardPlan, "index_put_backward", kind=ScatterKind.SET, include_self=True)
index_put_add_backward = functional(
    IndexPutBackwardPlan, "index_put_add_backward", kind=ScatterKind.ADD, include_self=True
)
