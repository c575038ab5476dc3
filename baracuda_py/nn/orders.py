"""How PyTorch calls a function: the order of its parameters, their names and ours, and what its results are called."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

# Functions: PyTorch's parameters in its order, "word:ours" where the word is not in WORDS. Others take their operands.
# "*word" is given as a tuple, or as the rest of the positional arguments; "*ours" is passed as such a rest.
_ORDERS = """
softmax log_softmax softmin: input dim _stacklevel dtype
gumbel_softmax: logits:x tau hard eps dim
cumsum cumprod cummax cummin logcumsumexp count_nonzero: input dim
sum prod mean nansum nanmean amax amin all any argmax argmin logsumexp aminmax hash_tensor: input dim keepdim
var std var_mean std_mean: input dim unbiased keepdim
norm: input p dim keepdim dtype
frobenius_norm: input dim keepdim
norm_except_dim: v:x pow:p dim
normalize: input p dim eps
cosine_similarity: x1 x2 dim eps
pairwise_distance: x1 x2 p eps keepdim
cdist: x1 x2 p compute_mode
pdist: input p
trapezoid trapz cumulative_trapezoid: y x dx dim
cov: input correction fweights aweights
cross: input:a other:b dim
renorm: input p dim maxnorm
diff: input n dim prepend append
trace: input
gather: input dim index sparse_grad
index_select: input dim index:indices
scatter: input dim index src reduce
scatter_add: input dim index src
embedding: input:indices weight padding_idx max_norm norm_type scale_grad_by_freq sparse
embedding_bag: input:indices weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights \
include_last_offset padding_idx
index_add: input dim index source:src alpha
index_copy: input dim index source:src
index_fill: input dim index value
index_reduce: input dim index source:src reduce include_self
take_along_dim: input indices dim
masked_scatter: input mask source
index_put: input indices:key values accumulate
put: input index:indices source:values accumulate
unravel_index: indices:x shape:dims
segment_reduce: data reduce lengths indices offsets axis unsafe initial
layer_norm: input normalized_shape weight bias eps
batch_norm: input running_mean running_var weight bias training momentum eps
batch_norm_stats: input eps
batch_norm_elemt: input weight bias mean invstd:rstd eps
batch_norm_backward_reduce: grad_out:dy input mean invstd:rstd
batch_norm_backward_elemt: grad_out:dy input mean invstd:rstd weight sum_dy sum_dy_xmu:sum_dy_xhat count
native_batch_norm: input weight bias running_mean running_var training momentum eps
local_response_norm: input size alpha beta k
group_norm: input num_groups weight bias eps
instance_norm: input running_mean running_var weight bias use_input_stats momentum eps
cross_entropy: input:logits target:targets weight size_average ignore_index reduce reduction label_smoothing
linear_cross_entropy: input linear_weight:weight target linear_bias:bias weight:class_weight
mse_loss l1_loss: input target size_average reduce reduction weight
smooth_l1_loss: input target size_average reduce reduction beta
huber_loss: input target reduction delta weight
binary_cross_entropy: input target weight size_average reduce reduction
binary_cross_entropy_with_logits: input target weight size_average reduce reduction pos_weight
poisson_nll_loss: input target log_input full size_average eps reduce reduction
gaussian_nll_loss: input target var full eps reduction
hinge_embedding_loss: input target margin size_average reduce reduction
soft_margin_loss: input target size_average reduce reduction
margin_ranking_loss: input1:x input2:other target margin size_average reduce reduction
nll_loss: input target weight size_average ignore_index reduce reduction
multi_margin_loss: input target p margin weight size_average reduce reduction
multilabel_margin_loss: input target:labels size_average reduce reduction
multilabel_soft_margin_loss: input target:hits weight size_average reduce reduction
cosine_embedding_loss: input1:x input2:other target margin size_average reduce reduction
triplet_margin_loss: anchor:x positive negative margin p eps swap size_average reduce reduction
triplet_margin_with_distance_loss: anchor:x positive negative
ctc_loss: log_probs targets input_lengths target_lengths blank reduction zero_infinity
elu celu: input alpha inplace
leaky_relu: input negative_slope inplace
hardtanh: input min_val max_val inplace
hardshrink softshrink: input lambd
softplus: input beta threshold
threshold: input threshold value inplace
relu relu6 selu silu mish hardswish hardsigmoid: input inplace
dropout alpha_dropout feature_dropout feature_alpha_dropout: input p training inplace
glu: input:gate dim
prelu: input weight
logit: input eps
nan_to_num: input nan posinf neginf
round: input decimals
polygamma: n input
mvlgamma: input p
clamp clip: input min max
clamp_min: input min
clamp_max: input max
lerp: input:a end:b weight
pow float_power: input:a exponent:b
heaviside: input:a values:b
where: condition input:a other:b
masked_fill: input mask value
addcmul addcdiv: input:a tensor1:b tensor2:c value
addmm: input:c mat1:a mat2:b
baddbmm: input:c batch1:a batch2:b
addmv: input:c mat:a vec:b
addbmm: input:c batch1:a batch2:b
addr: input:c vec1:a vec2:b
outer ger: input:a vec2:b
kron: input:a other:b
tensordot: a b dims:axes
matrix_power: input:a n
fft ifft rfft irfft hfft ihfft: input:x n dim norm
fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn ihfftn: input:x s dim norm
bilinear: input1:a input2:b weight bias
mm bmm: input:a mat2:b
mv: input:a vec:b
dot: input:a tensor:b
grouped_mm: mat_a:a mat_b:b offs:offsets bias
linear: input weight bias
isclose allclose: input:a other:b rtol atol equal_nan
dist: input:a other:b p
max_pool1d max_pool2d max_pool3d: input kernel_size stride padding dilation ceil_mode return_indices
avg_pool1d avg_pool2d avg_pool3d: input kernel_size stride padding ceil_mode count_include_pad divisor_override
lp_pool1d lp_pool2d lp_pool3d: input norm_type kernel_size stride ceil_mode
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d: input output_size
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d: input output_size return_indices
max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices: input kernel_size stride padding dilation \
ceil_mode
adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices: input output_size
interpolate: input size scale_factor mode align_corners recompute_scale_factor antialias
upsample: input size scale_factor mode align_corners
upsample_nearest upsample_bilinear: input size scale_factor
grid_sample: input grid mode padding_mode align_corners
affine_grid: theta size align_corners
grid_sampler grid_sampler_2d grid_sampler_3d: input grid interpolation_mode padding_mode align_corners
affine_grid_generator: theta size align_corners
max_unpool1d max_unpool2d max_unpool3d: input indices kernel_size stride padding output_size
conv1d conv2d conv3d: input weight bias stride padding dilation groups
conv_transpose1d conv_transpose2d conv_transpose3d: input weight bias stride padding output_padding groups dilation
convolution: input weight bias stride padding dilation transposed output_padding groups
conv_tbc: input weight bias pad
pad: input pad mode value
constant_pad_nd: input:x pad value
fold: input output_size kernel_size dilation padding stride
pixel_shuffle: input upscale_factor
pixel_unshuffle: input downscale_factor
channel_shuffle native_channel_shuffle: input groups
one_hot: tensor:index num_classes:classes
cat concat concatenate stack: tensors:xs dim
hstack vstack dstack column_stack row_stack: tensors:xs
split: tensor:x split_size_or_sections:split_size dim
split_copy unsafe_split: input split_size dim
split_with_sizes unsafe_split_with_sizes: input split_sizes:sizes dim
split_with_sizes_copy: input split_sizes:split_size dim
chunk unsafe_chunk: input chunks dim
unbind unbind_copy squeeze unsqueeze: input dim
tensor_split: input indices_or_sections dim
hsplit vsplit dsplit: input indices_or_sections
flatten: input start_dim:start_axis end_dim:end_axis
unflatten: input dim sizes:shape
movedim moveaxis: input source destination
swapaxes: input axis0:first axis1:second
swapdims: input dim0:first dim1:second
narrow narrow_copy: input dim start length
flip: input dims
roll: input shifts dims
rot90: input k dims:axes
tile: input dims:reps
repeat_interleave: input repeats dim output_size:total
expand_copy: input size:sizes implicit
permute permute_copy: input *dims:*axes
reshape: input *shape:*shape
unfold_copy: input dimension:axis size step
vander: x N:n increasing
fill: input value
ravel resolve_conj resolve_neg t view_as_complex: input
view_as_real: input:z
choose_qparams_optimized: input numel n_bins ratio bit_width
tril triu diag: input diagonal
diagflat: input offset
diagonal diagonal_copy diag_embed: input offset dim1:axis1 dim2:axis2
diagonal_scatter: input src offset dim1:axis1 dim2:axis2
slice_copy: input dim start end:stop step
slice_scatter: input src dim start end:stop step
select_scatter: input src dim index
as_strided as_strided_copy: input size stride storage_offset
as_strided_scatter: input src size stride storage_offset
combinations: input r with_replacement
tril_indices triu_indices: row:n col:m offset:k
arange range: start end:stop step dtype:element
linspace: start end:stop steps:num dtype:element
logspace: start end:stop steps:num base dtype:element
eye: n m dtype:element
zeros ones empty rand randn: *size:shape dtype:element
empty_strided: size:shape stride dtype:element
empty_permuted: size:shape physical_layout dtype:element
bartlett_window blackman_window hann_window: window_length:n periodic dtype:element
hamming_window: window_length:n periodic alpha beta dtype:element
kaiser_window: window_length:n periodic beta dtype:element
full: size:shape fill_value:value dtype:element
full_like: input fill_value:value dtype:element
zeros_like ones_like empty_like rand_like randn_like: input dtype:element
randint: low high size:shape dtype:element
randint_like: input low high dtype:element
randperm: n dtype:element
bernoulli: input:p generator
poisson: input:rate generator
binomial: count prob:p generator
normal: mean:loc std:scale size:shape
multinomial: input:probs num_samples replacement
scatter_reduce: input dim index src reduce include_self
sort argsort: input dim descending stable
topk: input k dim largest sorted
kthvalue: input k dim keepdim
median nanmedian mode: input dim keepdim
quantile nanquantile: input q dim keepdim interpolation
unique: input sorted return_inverse return_counts dim
unique_consecutive: input return_inverse return_counts dim
searchsorted: sorted_sequence input:values out_int32 right side sorter
bucketize: input boundaries out_int32 right
histc: input bins min max
histogram histogramdd: input bins range weight density
bincount: input weights minlength
isin: elements:x test_elements assume_unique invert
multi_head_attention_forward: query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v \
add_zero_attn dropout_p out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask \
use_separate_proj_weight q_proj_weight k_proj_weight v_proj_weight static_k static_v average_attn_weights is_causal
dropout1d dropout2d dropout3d: input p training inplace
native_dropout: input p train:training
rrelu: input lower upper training inplace
"""
ORDERS = {
    name: tuple(words.split())
    for names, _, words in (line.partition(":") for line in _ORDERS.strip().splitlines())
    for name in names.split()
}
WORDS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "input": "x", "self": "input", "other": "b",
    "target": "targets", "sections": "indices_or_sections", "indices": "indices_or_sections",
    "tensor_indices_or_sections": "indices_or_sections", "train": "training", "out_dtype": "out_element",
    "element": "elements", "test_element": "test_elements",
}  # fmt: skip
"""PyTorch's words for ours, or for another of its own, where a function has that."""

IGNORED = ("sparse", "sparse_grad", "implicit", "generator")
"""What is refused but as it is by default."""

HELD = ("stable", "sorted", "assume_unique", "compute_mode", "unsafe", "_stacklevel", "eps")
"""Words of a row that are so here whether they are asked for or not, or that make no difference."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "alpha_dropout": {"training": False},
    "feature_alpha_dropout": {"training": False},
    "histogram": {"bins": 100},
}
"""What has another default than our function's."""

LOSSES = frozenset(name for name, words in ORDERS.items() if "reduction" in words)
"""Functions whose results have the dtype of their input; ours have float32 where they add up 16-bit floats."""

_MADE = """
arange range linspace logspace eye zeros ones empty full rand randn randint randperm normal empty_strided
empty_permuted tril_indices triu_indices bartlett_window blackman_window hann_window hamming_window kaiser_window
"""
MADE = frozenset(_MADE.split())
"""Functions that make an array where `device` says."""

LIKE = frozenset(f"{name}_like" for name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint"))
"""Functions that make an array like their first one, where `device` says otherwise."""

_RESULTS = """
max min sort topk kthvalue median nanmedian mode cummax cummin: values indices
aminmax: min max
frexp: mantissa exponent
histogram histogramdd: hist bin_edges
"""
RESULTS: dict[str, Any] = {
    name: namedtuple(name, words.split())
    for names, _, words in (line.partition(":") for line in _RESULTS.strip().splitlines())
    for name in names.split()
}
"""Functions with several results, which have names as torch's have."""
