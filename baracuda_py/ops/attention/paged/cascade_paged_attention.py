"""cascade_paged_attention: prompts' shared prefixes in levels, each read once for all that share it, and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core import Array
from ....core.checked import shown
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.views import permuted
from ...layout.concat import stack
from ..decoding.cascade_merge_states import CascadeMergeStatesPlan, cascade_merge_states
from .batch_paged_extend import batch_paged_extend

Levels = Sequence[Array] | None


def _levels(qo_indptr: Any, tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The bounds and tables of each level."""
    given = {"qo_indptr": qo_indptr} | {name: t for name, t in tables.items() if t is not None}
    for name, arrays in given.items():
        if not isinstance(arrays, (list, tuple)) or len(arrays) != len(qo_indptr) or not arrays:
            raise InvalidProblemError(f"{name} must be a list with an array for each level, got {shown(arrays)}")
    return [{name: arrays[i] for name, arrays in given.items()} for i in range(len(qo_indptr))]


@entry(CascadeMergeStatesPlan)
def cascade_paged_attention(
    q: Array, k_cache: Array, v_cache: Array, qo_indptr: Sequence[Array], *, page_table: Levels = None,
    lengths: Levels = None, kv_indices: Levels = None, kv_indptr: Levels = None, kv_last_page_len: Levels = None,
    sinks: Array | None = None, scale: float | None = None, is_causal: bool = True, softcap: float = 0.0,
    max_seqlen_q: Sequence[int] | None = None, layout: str = "hnd", return_lse: bool = False, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """batch_paged_extend where sequences share prefixes, in levels (flashinfer.MultiLevelCascadeAttentionWrapper).

    Each of qo_indptr, page_table, lengths, … is a list with an array for each level, the most shared first. Entry b of
    a level's bounds has the rows of all queries that see the tokens of entry b of its tables: in the first levels those
    of all sequences below a prefix, as rows of one tile; in the last one sequence's. A query sees all tokens of the
    first levels, and of the last those that is_causal says. A row that a level's bounds leave out has no tokens there.
    max_seqlen_q, the most queries of an entry, has a number for each level.

    Levels are attended to one by one and merged in their order by `cascade_merge_states`, so a prefix is read once for
    all that share it. A query's bits depend on its position and on how its tokens are cut into levels, so they are not
    those of `batch_paged_extend` over all tokens, and on nothing else: not on the other queries, sequences or pages.
    """
    tables = {
        "page_table": page_table, "lengths": lengths, "kv_indices": kv_indices, "kv_indptr": kv_indptr,
        "kv_last_page_len": kv_last_page_len,
    }  # fmt: skip
    levels = _levels(qo_indptr, tables)
    longest = [None] * len(levels) if max_seqlen_q is None else list(max_seqlen_q)
    if len(longest) != len(levels):
        raise InvalidProblemError(f"max_seqlen_q must have a number for each of {len(levels)} levels, got {longest}")
    options = {"stream": stream, "preference": preference}
    states = []
    for i, level in enumerate(levels):
        own = i == len(levels) - 1
        states.append(
            batch_paged_extend(
                q, k_cache, v_cache, **level, sinks=sinks if own else None, scale=scale,
                is_causal=is_causal and own, softcap=softcap, max_seqlen_q=longest[i], layout=layout, return_lse=True,
                **options,
            )
        )  # fmt: skip
    if len(states) == 1:
        y, lse = states[0]
        return (y, lse) if return_lse else y
    outputs = stack([y for y, _ in states], 1, **options)
    sums = stack([lse for _, lse in states], 0, **options)
    y, lse = cascade_merge_states(outputs, permuted(sums, (2, 0, 1), "lse"), **options)
    return (y, permuted(lse, (1, 0), "lse")) if return_lse else y
