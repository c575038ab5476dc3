"""The family of each ONNX operator, for the scoreboard, and why some have no counterpart here."""

from __future__ import annotations

_MEMBERS = {
    "elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
        "Cast CastLike Ceil Celu Clip ConstantOfShape Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
        "GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min "
        "Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus "
        "Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"
    ),
    "gated": "SwiGLU",
    "softmax": "Hardmax LogSoftmax Softmax",
    "norm": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization "
        "MeanVarianceNormalization RMSNormalization"
    ),
    "gemm": "Einsum Gemm MatMul MatMulInteger QLinearMatMul",
    "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "optimizer": "Adagrad Adam Momentum",
    "attention": "Attention CausalConvWithState FlexAttention LinearAttention RotaryEmbedding TensorScatter",
    "indexing": "Compress Gather GatherElements GatherND NonZero OneHot Scatter ScatterElements ScatterND Trilu",
    "reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare"
    ),
    "scan": "CumProd CumSum",
    "sort": "TopK Unique",
    "conv": "Col2Im Conv ConvInteger ConvTranspose DeformConv QLinearConv",
    "pooling": "AveragePool GlobalAveragePool GlobalMaxPool LpPool MaxPool MaxUnpool RoiAlign",
    "image": (
        "AffineGrid CenterCropPad DepthToSpace GridSample ImageDecoder NonMaxSuppression Resize SpaceToDepth Upsample"
    ),
    "shape": (
        "Concat Expand Flatten Pad Range Reshape ReverseSequence Shape Size Slice Split Squeeze Tile Transpose "
        "Unsqueeze"
    ),
    "quantise": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    "fft": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "random": "Bernoulli Dropout",
    "linalg": "Det EyeLike",
}
FAMILIES = {op: family for family, ops in _MEMBERS.items() for op in ops.split()}

UNMAPPED = {"Bernoulli": "which elements are 1 depends on the generator", "BitCast": "a view of the caller's array"}
