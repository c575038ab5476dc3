"""The name by which transformers asks for attention and for experts of this package."""

from __future__ import annotations

import contextlib

from .attention import NAME, attention_forward, attention_mask
from .experts import experts_forward


def register() -> None:
    """Make the name "baracuda" known to transformers, for models that are made later; once is enough.

    attn_implementation="baracuda", and experts_implementation="baracuda" where this version of it asks for experts by
    name.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)
    with contextlib.suppress(ImportError):
        from transformers.integrations.moe import ExpertsInterface

        ExpertsInterface.register(NAME, experts_forward)
