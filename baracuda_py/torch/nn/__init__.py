"""Modules over the functional layer, with the parameters and state_dict keys of torch.nn's where it has them."""

from .attention import Attention, KVCache
from .embedding import Embedding, RotaryEmbedding
from .linear import Linear, SwiGLU
from .loss import CrossEntropyLoss, FusedLinearCrossEntropyLoss
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)  # fmt: skip

__all__ = [
    "Attention", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossEntropyLoss", "Embedding",
    "FusedLinearCrossEntropyLoss", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KVCache",
    "LayerNorm", "Linear", "RMSNorm", "RotaryEmbedding", "SwiGLU",
]  # fmt: skip
