"""Modules over the functional layer, with the parameters and state_dict keys of torch.nn's where it has them.

Recurrent layers have those of mamba-ssm and flash-linear-attention.
"""

from .attention import Attention, KVCache
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .delta_net import DeltaNet, GatedDeltaNet, KimiDeltaAttention
from .embedding import Embedding, EmbeddingBag, RotaryEmbedding
from .fp8 import Fp8Linear, convert_to_fp8, fp8_pays
from .gated_linear_attention import GatedLinearAttention, MultiScaleRetention
from .gated_norm import FusedRMSNormGated, RMSNormGated
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
from .mamba import InferenceParams, Mamba, Mamba2
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
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .recurrent_cache import RecurrentCache
from .rwkv import RWKV7Attention
from .short_conv import ShortConvolution

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Attention",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CTCLoss",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "DeltaNet",
    "Embedding",
    "EmbeddingBag",
    "Fp8Linear",
    "FusedLinearCrossEntropyLoss",
    "FusedRMSNormGated",
    "GRUCell",
    "GatedDeltaNet",
    "GatedLinearAttention",
    "GaussianNLLLoss",
    "GroupNorm",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "InferenceParams",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "KVCache",
    "KimiDeltaAttention",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Mamba",
    "Mamba2",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiScaleRetention",
    "NLLLoss",
    "PoissonNLLLoss",
    "RMSNorm",
    "RMSNormGated",
    "RNNCell",
    "RWKV7Attention",
    "RecurrentCache",
    "RotaryEmbedding",
    "ShortConvolution",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "SwiGLU",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "convert_to_fp8",
    "fp8_pays",
]
