"""Rollouts of the model: a server that keeps the log-probability of each token, and what the trainer says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gpt_model import Decoder, Weights
from serve import Server

import baracuda_py as bc
from baracuda_py.serving import Batch, Sequence, prompt_lookup


class Rollouts(Server):
    """A server that drafts up to `drafts` tokens by lookup in each text.

    A model with the same bits gets the ops that have them, any other one the fastest.
    """

    def __init__(self, model: Decoder, pages: int, *, drafts: int = 0, **limits: Any) -> None:
        def draft(sequence: Sequence, most: int) -> list[int]:
            return prompt_lookup(sequence.tokens, min(most, drafts))

        super().__init__(model, pages, draft=draft if drafts else None, **limits)

    def logprobs(self, logits: Any, ids: Any) -> Any:
        return log_probabilities(logits, ids)

    def attention(self, q: Any, caches: tuple[Any, Any], batch: Batch) -> Any:
        if self.model.same_bits:
            return super().attention(q, caches, batch)
        tables = {"page_table": batch.page_table, "lengths": batch.lengths}
        if batch.longest == 1:
            return bc.batch_paged_decode(q, *caches, **tables)
        return bc.batch_paged_prefill(q, *caches, batch.qo_indptr, **tables, is_causal=True, max_seqlen_q=batch.longest)


def log_probabilities(logits: Any, ids: Any) -> Any:
    """log softmax(logits)[id] of every row, float32: the op of the server and of the trainer."""
    return bc.neg(bc.cross_entropy(logits, ids, reduction="none"))


def rectangle(sequences: list[Sequence]) -> np.ndarray:
    """Their tokens, int64 [sequences, longest], 0 behind the shorter ones: no token before those sees them."""
    made = np.zeros((len(sequences), max(len(one.tokens) for one in sequences)), np.int64)
    for row, one in zip(made, sequences, strict=True):
        row[: len(one.tokens)] = one.tokens
    return made


def forward(model: Decoder, tokens: Any) -> tuple[Any, Any, Weights]:
    """The trainer's pass over whole texts [sequences, context]: log-probabilities, logits, and what it saved.

    The log-probabilities are of all tokens but the first, [sequences, context - 1].
    """
    logits, saved = model.forward(tokens[:, :-1].copy())
    found = log_probabilities(logits, tokens[:, 1:].reshape(-1))
    return found.reshape(len(tokens), -1), logits, saved


def of_the_trainer(model: Decoder, sequences: list[Sequence], at_once: int) -> Iterator[np.ndarray]:
    """The trainer's log-probabilities of the generated tokens of each sequence."""
    for first in range(0, len(sequences), at_once):
        some = sequences[first : first + at_once]
        found = forward(model, model.xp.asarray(rectangle(some)))[0]
        host = found.get() if hasattr(found, "get") else found
        for row, one in zip(host, some, strict=True):
            yield row[one.prompt_length - 1 : len(one.tokens) - 1]
