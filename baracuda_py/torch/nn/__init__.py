"""Modules over the functional layer, with the parameters and state_dict keys of torch.nn's where it has them."""

from .attention import Attention, KVCache
from .embedding import Embedding, RotaryEmbedding
from .linear import Linear, SwiGLU
from .loss import CrossEntropyLoss, FusedLinearCrossEntropyLoss
from .norm import LayerNorm, RMSNorm

__all__ = [
    "Attention", "CrossEntropyLoss", "Embedding", "FusedLinearCrossEntropyLoss", "KVCache", "LayerNorm", "Linear",
    "RMSNorm", "RotaryEmbedding", "SwiGLU",
]  # fmt: skip
