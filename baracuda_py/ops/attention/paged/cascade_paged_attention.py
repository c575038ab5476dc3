"""cascade_paged_attention: prompts' shared prefixes in levels, each read once for all that share it, and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core import Array
from ....core.checked import shown
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.outputs import each_of
from ....core.views import permuted
from ...layout.concat import stack
from ..decoding.cascade_merge_states import CascadeMergeStatesPlan, cascade_merge_states
from .batch_paged_extend import batch_paged_extend


def _levels(qo_indptr: Any, tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The bounds and tables of each level."""
    given = {"qo_indptr": qo_indptr} | {name: t for name, t in tables.items() if t is not None}
    for name, arrays in given.items():
        if not isinstance(arrays, (list, tuple)) or len(arrays) != len(qo_indptr) or not arrays:
            raise InvalidProblemError(f"{name} must be a list with an array for each level, got {shown(arrays)}")
    return [{name: arrays[i] for name, arrays in given.items()} for i in range(len(qo_indptr))]


@entry(CascadeMergeStatesPlan)
def cascade_paged_attention(
    q: Array, k_cache: Array, v_cache: Array, qo_indptr: Sequence[Array], *,
    page_table: Sequence[Array] | None = None, lengths: Sequence[Array] | None = None,
    kv_indices: Sequence[Array] | None = None, kv_indptr: Sequence[Array] | None = None,
    kv_last_page_len: Sequence[Array] | None = None, sinks: Array | None = None, scale: float | None = None,
    is_causal: bool = True, softcap: float = 0.0, max_seqlen_q: Sequence[int] | None = None, layout: str = "hnd",
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
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
    facts: dict[str, Any] = {"scale": scale, "softcap": softcap, "layout": layout}

    def attend(i: int, **more: Any) -> Any:
        own: dict[str, Any] = {"sinks": sinks, "is_causal": is_causal} if i == len(levels) - 1 else {"is_causal": False}
        return batch_paged_extend(
            q, k_cache, v_cache, **levels[i], **own, max_seqlen_q=longest[i], **facts, **more, **options
        )

    if len(levels) == 1:
        return attend(0, return_lse=return_lse, out=out)
    to, *rest = each_of(out, 2 if return_lse else 1)
    states = [attend(i, return_lse=True) for i in range(len(levels))]
    outputs = stack([y for y, _ in states], 1, **options)
    sums = stack([lse for _, lse in states], 0, **options)
    to_lse = rest[0] if rest else states[0][1]  # the first level's is in `sums`
    places = None if to is None else (to, permuted(to_lse, (1, 0), "out"))
    y, lse = cascade_merge_states(outputs, permuted(sums, (2, 0, 1), "lse"), out=places, **options)
    if not return_lse:
        return y
    return y, (permuted(lse, (1, 0), "lse") if to is None else to_lse)
