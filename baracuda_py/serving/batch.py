"""The arrays of one step of a serving loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from .samplers import Samplers
from .sequence import Sequence


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a forward pass of the next tokens of some sequences needs, one sequence behind the other.

    sequences: whose tokens these are. tokens, positions [total]: their ids and places, int64. qo_indptr [batch + 1]:
    where each sequence's begin. lengths [batch]: tokens of each that the cache has after the step. page_table
    [batch, width], -1 behind the pages of each. slot_mapping [total]: where `paged_kv_append` puts each token's keys.
    copies [n, 2]: the pages to copy before anything is written (`copy_pages`). sampling: the sequences that get tokens
    from this step, all of whose tokens are then cached; drafts: what is tried behind the tokens of each of them; rows:
    the rows of the step's result that say which tokens they get, for each of `sampling` one and one a drafted token.
    longest: the most tokens of a sequence, drafted ones included.

    Arrays are NumPy's, int32 but for the ids, places and slots, until `placed` puts them elsewhere.
    """

    sequences: tuple[Sequence, ...]
    sampling: tuple[Sequence, ...]
    drafts: tuple[tuple[int, ...], ...]
    longest: int
    tokens: Any
    positions: Any
    qo_indptr: Any
    lengths: Any
    page_table: Any
    slot_mapping: Any
    copies: Any
    rows: Any

    @classmethod
    def of(
        cls, counts: dict[Sequence, int], drafts: dict[Sequence, tuple[int, ...]], copies: list[tuple[int, int]],
        page_size: int, width: int | None,
    ) -> Batch:  # fmt: skip
        """The batch of the next `counts[sequence]` tokens of each, and of what is drafted behind those of some.

        Their pages are there already. O(tokens + pages).
        """
        sequences, tried = tuple(counts), [drafts.get(one, ()) for one in counts]
        chunks = np.array([n + len(draft) for n, draft in zip(counts.values(), tried, strict=True)], np.int64)
        first = np.array([one.cached for one in sequences], np.int64)
        bounds = np.concatenate([[0], np.cumsum(chunks)])
        owner = np.repeat(np.arange(len(sequences)), chunks)
        positions = np.arange(bounds[-1]) - bounds[owner] + first[owner]
        widest = max((len(one.pages) for one in sequences), default=0)
        table = np.full((len(sequences), widest if width is None else width), -1, np.int64)
        for row, one in zip(table, sequences, strict=True):
            row[: len(one.pages)] = one.pages
        whole = [count == one.pending for one, count in counts.items()]
        drawn = [np.arange(end - len(d) - 1, end) for end, d, all in zip(bounds[1:], tried, whole, strict=True) if all]
        return cls(
            sequences=sequences,
            sampling=tuple(one for one, done in zip(sequences, whole, strict=True) if done),
            drafts=tuple(draft for draft, done in zip(tried, whole, strict=True) if done),
            longest=int(chunks.max(initial=0)),
            tokens=np.array(
                [
                    token
                    for (one, n), draft in zip(counts.items(), tried, strict=True)
                    for token in (*one.tokens[one.cached : one.cached + n], *draft)
                ],
                np.int64,
            ),
            positions=positions,
            qo_indptr=bounds.astype(np.int32),
            lengths=(first + chunks).astype(np.int32),
            page_table=table.astype(np.int32),
            slot_mapping=table[owner, positions // page_size] * page_size + positions % page_size,
            copies=np.array(copies, np.int32).reshape(-1, 2),
            rows=np.concatenate([np.zeros(0, np.int64), *drawn]),
        )

    def placed(self, place: Callable[[Any], Any]) -> Batch:
        """This batch with arrays of another package: `cupy.asarray`, `lambda a: torch.from_numpy(a).cuda()`."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: place(one) for name, one in arrays.items() if isinstance(one, np.ndarray)})

    def samplers(self, place: Callable[[Any], Any] = np.asarray) -> Samplers:
        """How `rows` are drawn: each as if what is drafted before it had been drawn."""
        behind = [
            (one, draft[:n])
            for one, draft in zip(self.sampling, self.drafts, strict=True)
            for n in range(len(draft) + 1)
        ]
        seen = behind if any(one.params.penalizes for one in self.sampling) else []
        return Samplers(
            [one.params for one, _ in behind],
            [len(one.tokens) + len(draft) for one, draft in behind],
            prompts=[one.tokens[: one.prompt_length] for one, _ in seen],
            texts=[[*one.generated, *draft] for one, draft in seen],
            place=place,
        )
