"""moe_permute and moe_unpermute: the rows of a mixture of experts brought together by expert, and back."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import reshaped, shape_of
from ...schedules.segments import By
from ..indexing.take import TakePlan, take
from .gather_scatter import GatherScatterPlan, gather_scatter_sum
from .segment_kinds import beyond, flat
from .segment_order import segment_order


@entry(TakePlan)
def moe_permute(
    x: Array, experts: Array, *, num_experts: int, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(y, offsets, places): the rows of x once for each expert of theirs, in the order of experts.

    x: [tokens, ...]; experts: [tokens, k], the experts of each, int32 or int64. y: [tokens · k, ...], rows offsets[e]
    to offsets[e + 1] - 1 for expert e, in the order of tokens; offsets [num_experts + 1]; places [tokens, k], where in
    y the row of a token for an expert is. An expert outside [0, num_experts), of another device, gets nothing: its
    place is -1, and the rows behind the last expert's are 0. Everything stays on the device: 5 launches. The
    gradient of x is a sum in a fixed order.
    """
    shape = shape_of(experts, "experts")
    if len(shape) != 2:
        raise InvalidProblemError(f"experts must be [tokens, k], got shape {shape}")
    y, offsets, places = each_of(out, 3)
    options = {"stream": stream, "preference": preference}
    given = {name: one for name, one in (("offsets", offsets), ("places", None if places is None else flat(
        places, shape, "places"))) if one is not None}  # fmt: skip
    offsets, found, rows = expert_order(experts, shape, num_experts, given, options)
    y = take(x, rows, axis=0, out=y, **options)
    return y, offsets, reshaped(found, shape, "places") if places is None else places


def expert_order(
    experts: Any, shape: tuple[int, ...], num_experts: int, given: dict[str, Any], options: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """(offsets, places, rows) of experts of that shape: rows of x in the order of experts; places are flat."""
    _, offsets, places, rows = segment_order(
        flat(experts, shape, "experts"), num_segments=num_experts, fan=max(shape[1], 1), absent=beyond(experts),
        others=True, return_places=True, return_rows=True, out=given or None, **options,
    )  # fmt: skip
    return offsets, places, rows


@entry(GatherScatterPlan)
def moe_unpermute(
    y: Array, places: Array, weight: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x[t, ...] = Σ weight[t, k] y[places[t, k], ...]: the experts' results of every token, weighted and added.

    y: [rows, ...] as `moe_permute` orders them; places: [tokens, k], of which those outside [0, rows) add nothing;
    weight: [tokens, k], of y's element or its accumulator's, or None for 1. Gradients of y and weight; fixed sums.
    """
    shape = shape_of(places, "places")
    if len(shape) != 2:
        raise InvalidProblemError(f"places must be [tokens, k], got shape {shape}")
    return gather_scatter_sum(
        y, flat(places, shape, "places"), None, None if weight is None else flat(weight, shape, "weight"),
        num_segments=shape[0], by=By.EVENLY.value, out=out, stream=stream, preference=preference,
    )  # fmt: skip
