"""embedding_bag: rows of a table looked up bag by bag and combined (torch.nn.functional.embedding_bag)."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.checked import real, shown, truth
from ...core.errors import InvalidProblemError
from ...calls.refusing import refuse_call
from ...calls.entries import entry
from ...core.views import constant, shape_of
from ...schedules.segments import By
from ..indexing.indexed import indices_read
from ..segment.segment_kinds import flat
from ..segment.gather_scatter import GatherScatterPlan, gather_scatter_max, gather_scatter_mean, gather_scatter_sum
from .embedding_renorm import embedding_renorm

_MODES = {"sum": gather_scatter_sum, "mean": gather_scatter_mean, "max": gather_scatter_max}


@entry(GatherScatterPlan)
def embedding_bag(
    indices: Array, weight: Array, offsets: Array | None = None, per_sample_weights: Array | None = None, *,
    mode: str = "mean", padding_idx: int | None = None, include_last_offset: bool = False,
    scale_grad_by_freq: bool = False, max_norm: float | None = None, norm_type: float = 2.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[b, :] = the rows weight[i, :] of the indices i in bag b combined: mode sum, mean or max.

    indices: [bags, length], or [tokens] with offsets [bags], the first index of every bag; with include_last_offset
    [bags + 1]. per_sample_weights, as many as indices, multiply the rows (of sum, as in PyTorch, and of the others).
    padding_idx: indices that have no part, and whose row has no gradient. An empty bag is 0. scale_grad_by_freq divides
    the gradient of a row by how often it is named. max_norm: rows that are named are shortened to it first, in place
    (`embedding_renorm`). The gradients of weight and per_sample_weights have the same bits in every run. A max's goes
    to the first of several rows. An index outside [0, rows) has no part.
    """
    if not isinstance(mode, str) or mode not in _MODES:
        raise InvalidProblemError(f"mode must be one of {', '.join(_MODES)}, got {shown(mode)}")
    options = {"stream": stream, "preference": preference}
    shape, table = indices_read(indices, "indices").shape, shape_of(weight, "weight")
    if len(table) < 2:
        raise InvalidProblemError(f"weight must be [rows, columns], got shape {table}")
    if offsets is not None:
        indices_read(offsets, "offsets")
    facts: dict[str, Any] = {
        "padding_idx": padding_idx, "by_frequency": truth("scale_grad_by_freq", scale_grad_by_freq),
        "with_empty": mode == "max",
    }  # fmt: skip
    if len(shape) == 2:
        if offsets is not None:
            raise InvalidProblemError(f"offsets must be None where indices are [bags, length], here {shape}")
        facts |= {"by": By.EVENLY.value, "num_segments": shape[0]}
        indices, per_sample_weights = (
            flat(one, shape, name) for one, name in ((indices, "indices"), (per_sample_weights, "per_sample_weights"))
        )
    elif len(shape) != 1 or offsets is None:
        raise InvalidProblemError(
            f"indices must be [bags, length], or [tokens] with offsets, got shape {shape}"
            + (" without offsets" if offsets is None else "")
        )
    else:
        last = truth("include_last_offset", include_last_offset)
        facts["by"] = By.OFFSETS.value if last else By.STARTS.value
    function = _MODES[mode]
    if max_norm is not None:
        max_norm, norm_type = real("max_norm", max_norm), real("norm_type", norm_type)
        arrays = {"x": weight, "src": indices, "index": offsets, "weight": per_sample_weights}
        refuse_call(function, arrays, facts, out, preference)
        embedding_renorm(constant(weight), indices, max_norm=max_norm, norm_type=norm_type, **options)
    return function(weight, indices, offsets, per_sample_weights, out=out, **facts, **options)
