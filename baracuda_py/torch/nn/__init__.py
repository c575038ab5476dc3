"""Modules over the functional layer, with the parameters and state_dict keys of torch.nn's where it has them."""

from .attention import Attention, KVCache
from .embedding import Embedding, RotaryEmbedding
from .linear import Linear, SwiGLU
from .loss import CrossEntropyLoss, FusedLinearCrossEntropyLoss
from .losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CTCLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from .norm import LayerNorm, RMSNorm

__all__ = [
    "Attention", "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "Embedding",
    "FusedLinearCrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "KVCache",
    "L1Loss", "LayerNorm", "Linear", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "RMSNorm", "RotaryEmbedding",
    "SmoothL1Loss", "SoftMarginLoss", "SwiGLU", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip
