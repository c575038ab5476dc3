"""ZeRO, stage 1 (Rajbhandari et al. 2020): every rank keeps the states, and makes the updates, of its part of the
parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core import Array
from ..core.arrays import read
from ..core.checked import sequence
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import shape_of
from ..ops.elementwise.cast import cast
from ..ops.layout.creation import zeros
from ..ops.optimizer.adam_step import adam_step
from .buckets import packed, unpack
from .collectives import all_gather, reduce_scatter
from .shares import options, rank_of, refuse_traced, size_of

_STEP = 64  # a part is a multiple of so many elements, so that every part begins where wide accesses may


def _arrays(name: str, given: Sequence[Array], element: Any = None) -> list[Any]:
    found = list(sequence(name, given, "arrays"))
    refuse_traced(*found)
    if not found:
        raise InvalidProblemError(f"{name} must have an array at least, got none")
    kinds = {read(one, name).element for one in found}
    if len(kinds) > 1 or not next(iter(kinds)).is_float:
        raise InvalidProblemError(f"{name} must be floats of one element, got {', '.join(sorted(map(str, kinds)))}")
    return found


def zero_shard_size(params: Sequence[Array], comm: Any = None) -> int:
    """How many numbers a rank keeps of the parameters: all of them behind each other, in equal parts, filled up.

    A state of an update, such as exp_avg of `distributed_adam_step`, has shape [zero_shard_size(params, comm)].
    """
    total = sum(math.prod(shape_of(one, "params")) for one in _arrays("params", params))
    return -(-total // (size_of(comm) * _STEP)) * _STEP


def _line(arrays: list[Any], size: int, stream: Any) -> Any:
    """The arrays behind each other, then zeros up to `size`."""
    missing = size - sum(math.prod(shape_of(one, "params")) for one in arrays)
    with beside(arrays[0], stream):
        rest = [zeros(missing, str(read(arrays[0], "params").element), like=arrays[0])] if missing else []
    return packed([*arrays, *rest], stream)


def zero_shard(params: Sequence[Array], comm: Any = None, *, element: Any = None, stream: Any = None) -> Any:
    """A copy of this rank's part of the parameters, [zero_shard_size]; in another element: a master of 16-bit ones."""
    found, each = _arrays("params", params), zero_shard_size(params, comm)
    own = _line(found, each * size_of(comm), stream)[rank_of(comm) * each :][:each]
    return cast(own, str(read(own, "params").element) if element is None else element, stream=stream)


def zero_step(
    update: Callable[[Any, Any], None], params: Sequence[Array], grads: Sequence[Array], comm: Any = None, *,
    op: Any = "mean", master: Array | None = None, stream: Any = None, preference: Any = None,
) -> list[Any]:  # fmt: skip
    """One step of which every rank makes its part: reduce_scatter of grads, update, all_gather of params.

    update(param_shard, grad_shard) writes to the first, both of shape [zero_shard_size]: any rule that goes element by
    element. params: arrays of one element, written in place and returned; grads: as many, alike, of one element. op:
    how grads are reduced. master: this rank's part as `zero_shard(…, element="float32")` made it; it is what update
    gets then, and params become what it rounds to. The order of sums is that of `all_reduce`, an update's bits do not
    depend on the part that an element is in: nor do the results' on the number of ranks, of gradients summed in a tree.
    """
    found, slopes = _arrays("params", params), _arrays("grads", grads)
    shapes = [[shape_of(one, "params") for one in many] for many in (found, slopes)]
    if shapes[0] != shapes[1]:
        raise InvalidProblemError(f"grads must have the shapes of params, {shapes[0]}, got {shapes[1]}")
    each, size = zero_shard_size(found, comm), size_of(comm)
    if master is not None and shape_of(master, "master") != (each,):
        raise InvalidProblemError(f"master must have shape {(each,)}, got {shape_of(master, 'master')}")
    wire, _ = options(stream, preference)
    slope = _line(slopes, each * size, stream)
    slope = slope if size == 1 else reduce_scatter(slope, comm, op, 0, **wire)
    own = zero_shard(found, comm, stream=stream) if master is None else master
    update(own, slope)
    own = own if master is None else cast(own, str(read(found[0], "params").element), stream=stream)
    unpack(own if size == 1 else all_gather(own, comm, axis=0, **wire), found, stream)
    return found


def distributed_adam_step(
    params: Sequence[Array], grads: Sequence[Array], exp_avg: Array, exp_avg_sq: Array, comm: Any = None, *,
    lr: Any = 1e-3, step: Any, mode: str = "adamw", beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float | None = None, grad_scale: Any = 1.0, op: Any = "mean", master: Array | None = None,
    stream: Any = None, preference: Any = None,
) -> list[Any]:  # fmt: skip
    """`bc.adam_step` of parameters whose moments are spread over the ranks: `zero_step` with Adam or AdamW.

    exp_avg, exp_avg_sq: [zero_shard_size(params, comm)], of the accumulator's element, zeros at first, updated in
    place. params are written in place and returned. The other options are those of `adam_step`, master and op those of
    `zero_step`.
    """

    def update(own: Any, slope: Any) -> None:
        adam_step(
            [own], [slope], [exp_avg], [exp_avg_sq], lr=lr, step=step, mode=mode, beta1=beta1, beta2=beta2, eps=eps,
            weight_decay=weight_decay, grad_scale=grad_scale, stream=stream,
        )  # fmt: skip

    return zero_step(update, params, grads, comm, op=op, master=master, stream=stream, preference=preference)
