"""Examples of functions whose parameters are not their plan's operands, written by hand; tests run every one."""

from __future__ import annotations

from .affine_table import AFFINE
from .attention import ATTENTION
from .clouds import CLOUDS
from .conv_table import CONV
from .experts import EXPERTS
from .fourier import FOURIER
from .images import IMAGES
from .indexing import EXAMPLES
from .latent import LATENT
from .layout import LAYOUT
from .linalg_functions import LINALG_FUNCTIONS
from .linalg_lu import LINALG_LU
from .quantized import QUANTIZED
from .random_table import RANDOM
from .recurrence import RECURRENCE
from .recurrent import RECURRENT
from .signals import SIGNALS
from .sort import SORT
from .sounds import SOUNDS

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"
_IMAGES = f"{_RNG}x = rng.standard_normal((2, 4, 4, 4), dtype=np.float32)\n"
_AB = f"{_RNG}a = rng.standard_normal((3, 4), dtype=np.float32)\nb = rng.standard_normal(4, dtype=np.float32)\n"
_ROWS = (
    f"{_RNG}x1 = rng.standard_normal((3, 4), dtype=np.float32)\nx2 = rng.standard_normal((3, 4), dtype=np.float32)\n"
)
_BYTES = f"{_RNG}a, w = (rng.integers(-128, 128, (3, 4), dtype=np.int8) for _ in range(2))\n"
_GROUPS = (
    f"{_RNG}a = rng.standard_normal((7, 4), dtype=np.float32)\nb = rng.standard_normal((3, 4, 5), dtype=np.float32)\n"
)
_MASK = f"{_X}mask = rng.random((3, 4)) < 0.5\n"
_PAIR = f"{_RNG}a, b = (rng.uniform(1.0, 4.0, (3, 4)).astype(np.float32) for _ in range(2))\n"
_GRADIENTS = {  # of functions of two arrays: what the gradient is of
    **dict.fromkeys(("beta", "betaln", "boxcox", "boxcox1p", "kl_div", "poch", "rel_entr"), "da, db"),
    **dict.fromkeys(("gammainc", "gammaincc", "owens_t"), "da, db"),
    **dict.fromkeys(("expn", "zeta"), "db"),
}  # fmt: skip
_DY = "dy = rng.standard_normal(3, dtype=np.float32)\n"

_STACKS = f"""{_RNG}a = rng.standard_normal((2, 3, 4), dtype=np.float32)
b = rng.standard_normal((2, 4, 5), dtype=np.float32)
"""

_LOGITS = f"{_RNG}logits = rng.standard_normal((3, 4), dtype=np.float32)\nclasses = np.array([0, 3, 1])\n"
_LOGPS = f"{_RNG}chosen, rejected, other, reference = -rng.uniform(0.5, 2.0, (4, 3)).astype(np.float32)\n"

_TOKENS = f"""{_RNG}policy, old, reference = -rng.uniform(0.5, 2.0, (3, 2, 4)).astype(np.float32)
advantages = np.array([1.0, -1.0], dtype=np.float32)
mask = np.array([[True] * 4, [True, True, False, False]])
"""

TABLE: dict[str, str] = {
    "adaptive_log_softmax_with_loss": f"""{_X}target = np.array([0, 5, 1])
head, down = rng.standard_normal((3, 4), dtype=np.float32), rng.standard_normal((2, 4), dtype=np.float32)
up = rng.standard_normal((4, 2), dtype=np.float32)
output, loss = bc.adaptive_log_softmax_with_loss(x, target, head, [(down, up)])""",
    **AFFINE,
    **ATTENTION,
    **CONV,
    **EXAMPLES,
    **FOURIER,
    **IMAGES,
    **LATENT,
    **RECURRENCE,
    **SIGNALS,
    **CLOUDS,
    **SOUNDS,
    **LINALG_LU,
    **LINALG_FUNCTIONS,
    **RECURRENT,
    **EXPERTS,
    "alpha_dropout": f"{_X}y = bc.alpha_dropout(x, 0.25, seed=7)",
    "array_equal": f"{_X}same = bc.array_equal(x, x)",
    "array_equiv": f"{_X}same = bc.array_equiv(x, x[:1])",
    "hash_tensor": f"{_X}word = bc.hash_tensor(x, axis=0)",
    "average_backward": f"""{_ROWS}{_DY}weights = np.abs(x2)
y, z = bc.average(x1, weights, axis=-1, returned=True)
dx, dweights = bc.average_backward(dy, x1, weights, y, z, axis=-1)""",
    "cast": f'{_X}y = bc.cast(x, "bfloat16")',
    "cdist": f"{_ROWS}y = bc.cdist(x1, x2, p=1)",
    "cdist_backward": f"""{_ROWS}y = bc.cdist(x1, x2)
dx1, dx2 = bc.cdist_backward(np.ones_like(y), x1, x2, y)""",
    "clipped_policy_loss": f"{_LOGPS}loss = bc.clipped_policy_loss(chosen, other, rejected, reference, beta=0.04)",
    "clipped_value_loss": f"{_TOKENS}loss = bc.clipped_value_loss(policy, old, reference, mask)",
    "cpo_loss": f"{_LOGPS}loss = bc.cpo_loss(chosen, rejected)",
    "cross_entropy": f"{_LOGITS}loss = bc.cross_entropy(logits, classes)",
    "ctc_loss": f"""{_RNG}log_probs = bc.log_softmax(rng.standard_normal((6, 2, 4), dtype=np.float32))
targets = np.array([[1, 2], [3, 3]])
loss = bc.ctc_loss(log_probs, targets, np.array([6, 5]), np.array([2, 1]))""",
    "ctc_loss_backward": f"""{_RNG}log_probs = bc.log_softmax(rng.standard_normal((6, 2, 4), dtype=np.float32))
given = log_probs, np.array([[1, 2], [3, 3]]), np.array([6, 5]), np.array([2, 1])
plan = bc.CtcLossPlan.select(bc.CtcLossDescriptor(
    input_length=6, batch=2, classes=4, target_shape=(2, 2), element="float32"
))
loss, nll = np.empty((), np.float32), np.empty(2, np.float32)
log_alpha = np.empty((2, 6, 5), np.float32)
names = ("log_probs", "targets", "input_lengths", "target_lengths")
plan(**dict(zip(names, given)), loss=loss, log_alpha=log_alpha, nll=nll)
dlog_probs = bc.ctc_loss_backward(np.ones_like(loss), *given, log_alpha, nll)""",
    "dice_loss": f"{_X}loss = bc.dice_loss(bc.sigmoid(x), (x > 0).astype(np.float32), axis=-1)",
    "distillation_loss": f"{_ROWS}loss = bc.distillation_loss(x1, x2, temperature=2.0)",
    "dpo_loss": f"{_LOGPS}loss = bc.dpo_loss(chosen, rejected, other, reference)",
    "gaussian_nll_loss": f"{_ROWS}loss = bc.gaussian_nll_loss(x1, x2, 0.5)",
    "grpo_loss": f"{_TOKENS}loss = bc.grpo_loss(policy, old, advantages, reference, mask, epsilon_high=0.28)",
    "info_nce_loss": f"{_ROWS}loss = bc.info_nce_loss(x1, x2)",
    "jaccard_loss": f"{_X}loss = bc.jaccard_loss(bc.sigmoid(x), (x > 0).astype(np.float32), axis=-1)",
    "kto_loss": f"{_LOGPS}loss = bc.kto_loss(chosen, reference, np.array([1, 0, 1], dtype=np.float32))",
    "nll_loss": f"{_LOGITS}loss = bc.nll_loss(bc.log_softmax(logits), classes)",
    "orpo_loss": f"{_LOGPS}loss = bc.orpo_loss(chosen, rejected)",
    "rnnt_loss": f"""{_RNG}logits = rng.standard_normal((2, 4, 3, 5), dtype=np.float32)
loss = bc.rnnt_loss(logits, np.array([[1, 2], [3, 3]]), np.array([4, 3]), np.array([2, 1]))""",
    "rnnt_loss_backward": f"""{_RNG}logits = rng.standard_normal((2, 4, 3, 5), dtype=np.float32)
given = logits, np.array([[1, 2], [3, 3]]), np.array([4, 3]), np.array([2, 1])
plan = bc.RnntLossPlan.select(bc.RnntLossDescriptor(batch=2, steps=4, labels=2, classes=5, element="float32"))
loss, nll, lse = np.empty((), np.float32), np.empty(2, np.float32), np.empty((2, 4, 3), np.float32)
log_steps, log_alpha = np.empty((2, 4, 3, 2), np.float32), np.empty((2, 4, 3), np.float32)
names = ("logits", "targets", "logit_lengths", "target_lengths")
plan(**dict(zip(names, given)), loss=loss, lse=lse, log_steps=log_steps, log_alpha=log_alpha, nll=nll)
dlogits = bc.rnnt_loss_backward(np.ones_like(loss), *given, lse, log_steps, log_alpha, nll)""",
    "router_z_loss": f"{_X}loss = bc.router_z_loss(x)",
    "selective_log_softmax": f"{_LOGITS}log_p = bc.selective_log_softmax(logits, classes)",
    "simpo_loss": f"{_LOGPS}loss = bc.simpo_loss(chosen, rejected)",
    "triplet_margin_with_distance_loss": f"{_ROWS}loss = bc.triplet_margin_with_distance_loss(x1, x2, -x1)",
    "tvd_loss": f"{_ROWS}loss = bc.tvd_loss(bc.softmax(x1), bc.softmax(x2))",
    "clamp": f"{_X}y = bc.clamp(x, -1.0, 1.0)",
    "clamp_max": f"{_X}y = bc.clamp_max(x, 1.0)",
    "clamp_min": f"{_X}y = bc.clamp_min(x, 0.0)",
    "clip": f"{_X}y = bc.clip(x, None, 1.0)",
    "complex": f"{_ROWS}z = bc.complex(x1, x2)",
    "cosine_similarity": f"{_ROWS}y = bc.cosine_similarity(x1, x2, axis=-1)",
    "cosine_similarity_backward": f"{_ROWS}{_DY}dx1, dx2 = bc.cosine_similarity_backward(dy, x1, x2, axis=-1)",
    "dist": f"{_ROWS}y = bc.dist(x1, x2)",
    "dist_backward": f"{_ROWS}y = bc.dist(x1, x2)\ndx1, dx2 = bc.dist_backward(np.ones_like(y), x1, x2, y)",
    "dropout": f"{_X}y = bc.dropout(x, 0.25, seed=7)",
    "feature_alpha_dropout": f"{_X}y = bc.feature_alpha_dropout(x, 0.25, seed=7)",
    "feature_dropout": f"{_X}y = bc.feature_dropout(x, 0.25, seed=7)",
    "gumbel_softmax": f"{_X}y = bc.gumbel_softmax(x, tau=0.5, seed=7)",
    "gumbel_softmax_backward": f"""{_X}y = bc.gumbel_softmax(x, seed=7)
dx = bc.gumbel_softmax_backward(np.ones_like(y), y)""",
    "lerp": f"{_AB}y = bc.lerp(a, b, 0.25)",
    "grouped_mm": f"{_GROUPS}y = bc.grouped_mm(a, b, np.array([2, 2, 7]))",
    "ragged_dot": f"{_GROUPS}y = bc.ragged_dot(a, b, np.array([2, 0, 5]))",
    "addbmm": f"{_STACKS}y = bc.addbmm(np.zeros(5, dtype=np.float32), a, b)",
    "addmm": f"{_AB}y = bc.addmm(b, a, np.eye(4, dtype=np.float32), beta=0.5)",
    "fp8_gemm": f"""{_ROWS}a, w = (bc.cast(x, "float8_e4m3fn") for x in (x1, x2))
y = bc.fp8_gemm(a, w.T, element="float8_e4m3fn")  # NumPy and CuPy hold fp8 as bytes""",
    "scaled_mm": f"""{_ROWS}a, w = (bc.cast(x, "float8_e4m3fn") for x in (x1, x2))
scale = np.full((1, 1), 0.5, np.float32)
y = bc.scaled_mm(a, w.T, scale, scale, element="float8_e4m3fn")  # NumPy and CuPy hold fp8 as bytes""",
    "int_mm": f"{_BYTES}y = bc.int_mm(a, w.T)",
    "quantized_linear": f"""{_BYTES}x = rng.standard_normal((2, 4), dtype=np.float32)
y = bc.quantized_linear(x, w, np.full(3, 0.01, np.float32))""",
    "quantized_linear_backward": f"""{_BYTES}x = rng.standard_normal((2, 4), dtype=np.float32)
dx = bc.quantized_linear_backward(np.ones((2, 3), np.float32), x, w, np.full(3, 0.01, np.float32))""",
    "llm_int8_linear": f"""{_BYTES}x = 4 * rng.standard_normal((2, 4), dtype=np.float32)
y = bc.llm_int8_linear(x, w, np.full(3, 0.01, np.float32))""",
    "llm_int8_linear_backward": f"""{_BYTES}x = rng.standard_normal((2, 4), dtype=np.float32)
dx = bc.llm_int8_linear_backward(np.ones((2, 3), np.float32), x, w, np.full(3, 0.01, np.float32))""",
    "smooth_quant_linear": f"""{_BYTES}act_scale = np.array(0.02, np.float32)
y = bc.smooth_quant_linear(a, w, act_scale, np.full(3, 0.01, np.float32))""",
    "matmul_int8": f"{_BYTES}y = bc.matmul_int8(a, w.T, 0.01)",
    "matmul_integer": f"{_BYTES}y = bc.matmul_integer(a, w.T, np.int8([3, -1, 0]))",
    "qlinear_matmul": f"""{_BYTES}scale, zero = np.float32([0.5]), np.int8([3])
y = bc.qlinear_matmul(a, scale, zero, w.T, scale, None, np.float32([100]), zero)""",
    "sparse24_prune": f"{_X}y = bc.sparse24_prune(x)",
    "sparse24_prune_backward": f"{_X}dx = bc.sparse24_prune_backward(np.ones_like(x), x)",
    "sparse24_mask": f"{_X}mask = bc.sparse24_mask(x)",
    "sddmm": f"""{_ROWS}columns, offsets = np.array([0, 2, 1, 0]), np.array([0, 2, 2, 4])
y = bc.sddmm(x1, x2, columns, offsets)""",
    "sparse24_matmul": f"""{_ROWS}values, metadata = bc.sparse24_compress(x2)
y = bc.sparse24_matmul(x1, values, metadata)""",
    "sparse24_matmul_backward": f"""{_ROWS}values, metadata = bc.sparse24_compress(x2)
dy, bias = np.ones((3, 3), np.float32), np.zeros(3, np.float32)
dx, dvalues, dbias = bc.sparse24_matmul_backward(dy, x1, values, metadata, bias)""",
    "pack_signs": f"{_X}bits = bc.pack_signs(x)",
    "unpack_signs": f"{_X}signs = bc.unpack_signs(bc.pack_signs(x), 4)",
    "binary_matmul": f"{_ROWS}y = bc.binary_matmul(bc.pack_signs(x1), bc.pack_signs(x2), k=4)",
    "ternary_quantize": f"{_X}packed, scale = bc.ternary_quantize(x)",
    "ternary_unpack": f"{_X}packed, scale = bc.ternary_quantize(x)\nweights = bc.ternary_unpack(packed, 4)",
    "ternary_matmul": f"""{_X}packed, scale = bc.ternary_quantize(x)
y = bc.ternary_matmul(np.arange(8, dtype=np.int8).reshape(2, 4), packed, None, scale)""",
    "int4_matmul": f"""{_RNG}a, b = (rng.integers(0, 256, (3, 4), dtype=np.uint8) for _ in range(2))
y = bc.int4_matmul(a, b)  # two numbers of four bits in a byte""",
    "linear": f"{_ROWS}bias = np.zeros(3, np.float32)\ny = bc.linear(x1, x2, bias)",
    "gated_linear": f"{_ROWS}y = bc.gated_linear(x1, x2, x2)",
    "cross": f"{_RNG}a, b = rng.standard_normal((2, 4, 3), dtype=np.float32)\ny = bc.cross(a, b)",
    "max_unpool1d": f"""{_RNG}x = rng.standard_normal((2, 4, 8), dtype=np.float32)
kept, indices = bc.max_pool1d(x, kernel_size=2, return_indices=True)
y = bc.max_unpool1d(kept, indices, 2)""",
    "max_unpool2d": f"""{_IMAGES}kept, indices = bc.max_pool2d(x, kernel_size=2, return_indices=True)
y = bc.max_unpool2d(kept, indices, 2)""",
    "max_unpool3d": f"""{_IMAGES}kept, indices = bc.max_pool3d(x, kernel_size=2, return_indices=True)
y = bc.max_unpool3d(kept, indices, 2)""",
    "linear_cross_entropy_of_probabilities": f"""{_ROWS}q = np.full((3, 3), 1 / 3, np.float32)
y = bc.linear_cross_entropy_of_probabilities(x1, x2, q)""",
    "linear_cross_entropy_of_probabilities_backward": f"""{_ROWS}q = np.full((3, 3), 1 / 3, np.float32)
dloss, bias = np.ones((), np.float32), np.zeros(3, np.float32)
dx, dweight, dbias = bc.linear_cross_entropy_of_probabilities_backward(dloss, x1, x2, q, bias)""",
    "linear_cross_entropy": f"{_ROWS}y = bc.linear_cross_entropy(x1, x2, np.array([0, 2, 1]))",
    "linear_log_prob": f"{_ROWS}y = bc.linear_log_prob(x1, x2, np.array([0, 2, 1]))",
    "linear_swiglu": f"{_ROWS}y = bc.linear_swiglu(x1, np.concatenate([x2, x2]))",
    "addr": f"{_AB}y = bc.addr(a, np.ones(3, dtype=np.float32), b, beta=0.5)",
    "bilinear": f"{_ROWS}weight = rng.standard_normal((5, 4, 4), dtype=np.float32)\ny = bc.bilinear(x1, x2, weight)",
    "block_diag": f"{_AB}y = bc.block_diag(a, b, a)",
    "chain_matmul": f"{_AB}y = bc.chain_matmul(a.T, a, a.T)",
    "dot_general": f"{_STACKS}y = bc.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))",
    "einsum": f'{_STACKS}y = bc.einsum("bij,bjk->bki", a, b)',
    "matrix_power": f"{_AB}y = bc.matrix_power(a @ a.T, 5)",
    "matvec": f"{_AB}y = bc.matvec(a, b)",
    "multi_head_attention_forward": f"""{_RNG}x = rng.standard_normal((5, 2, 8), dtype=np.float32)
project, combine = rng.standard_normal((24, 8), dtype=np.float32), rng.standard_normal((8, 8), dtype=np.float32)
y, weights = bc.multi_head_attention_forward(
    x, x, x, 8, 2, project, None, None, None, False, 0.0, combine, None, average_attn_weights=False
)""",
    "multi_dot": f"{_AB}y = bc.multi_dot([a.T, a, b])",
    "softmin": f"{_X}y = bc.softmin(x, axis=1)",
    "tensordot": f"{_STACKS}y = bc.tensordot(a, b, ([0, 2], [0, 1]))",
    "vecmat": f"{_AB}y = bc.vecmat(b, a.T)",
    "matmul": f"{_AB}y = bc.matmul(a, b)",
    "ozaki_matmul": f"{_AB}y = bc.ozaki_matmul(a.astype(np.float64), b.astype(np.float64), slices=8)",
    "split_matmul": f'{_AB}y = bc.split_matmul(a, b, products="bf16x9")',
    "matmul_tc": f"{_AB}a, b = (bc.cast(x, 'float16') for x in (a, b))\ny = bc.matmul_tc(a, b)",
    "matmul_tc_async": f"{_AB}a, b = (bc.cast(x, 'float16') for x in (a, b))\ny = bc.matmul_tc_async(a, b)",
    "matmul_tc_bf16": f"{_AB}a, b = (bc.cast(x, 'bfloat16') for x in (a, b))\ny = bc.matmul_tc_bf16(a, b)",
    "matmul_tc_bf16_async": f"{_AB}a, b = (bc.cast(x, 'bfloat16') for x in (a, b))\ny = bc.matmul_tc_bf16_async(a, b)",
    "masked_fill": f"{_MASK}y = bc.masked_fill(x, mask, -1.0)",
    "norm_backward": f"{_X}y = bc.norm(x, axis=-1)\ndx = bc.norm_backward(np.ones_like(y), x, y, axis=-1)",
    "normalize_backward": f"{_ROWS}dx = bc.normalize_backward(x2, x1, axis=-1)",
    "pairwise_distance": f"{_ROWS}y = bc.pairwise_distance(x1, x2)",
    "pairwise_distance_backward": f"""{_ROWS}y = bc.pairwise_distance(x1, x2)
dx1, dx2 = bc.pairwise_distance_backward(np.ones_like(y), x1, x2, y)""",
    "polar": f"{_ROWS}z = bc.polar(np.abs(x1), x2)",
    "dense_to_jagged": f"""{_RNG}dense = rng.standard_normal((2, 3, 4), dtype=np.float32)
values = bc.dense_to_jagged(dense, np.array([0, 2, 5]), 5)""",
    "jagged_dense_bmm": f"""{_RNG}values = rng.standard_normal((5, 3), dtype=np.float32)
dense = rng.standard_normal((2, 3, 4), dtype=np.float32)
y = bc.jagged_dense_bmm(values, np.array([0, 2, 5]), dense)""",
    "jagged_jagged_bmm": f"""{_RNG}x_values = rng.standard_normal((5, 3), dtype=np.float32)
y_values = rng.standard_normal((5, 4), dtype=np.float32)
z = bc.jagged_jagged_bmm(x_values, y_values, np.array([0, 2, 5]))""",
    "permute_2d_sparse_data": """lengths, ids = np.array([[2, 0], [1, 2]]), np.array([7, 8, 3, 1, 4])
lengths, ids = bc.permute_2d_sparse_data(np.array([1, 0]), lengths, ids)""",
    "block_bucketize_sparse_features": """lengths, ids = np.array([2, 0, 1, 2]), np.array([7, 8, 3, 1, 4])
sizes = np.array([5, 3])
found, own, back = bc.block_bucketize_sparse_features(lengths, ids, sizes, 2, sequence=True)""",
    "jagged_to_padded_dense": f"""{_RNG}values = rng.standard_normal((5, 4), dtype=np.float32)
y = bc.jagged_to_padded_dense(values, np.array([0, 2, 5]), 3)""",
    "moe_permute": f"""{_X}experts = np.array([[1, 0], [0, 2], [2, 1]])
y, offsets, places = bc.moe_permute(x, experts, num_experts=3)""",
    "moe_unpermute": f"""{_X}experts = np.array([[1, 0], [0, 2], [2, 1]])
rows, offsets, places = bc.moe_permute(x, experts, num_experts=3)
y = bc.moe_unpermute(rows, places, np.full((3, 2), 0.5, np.float32))""",
    "segment_reduce": f"""{_X}y = bc.segment_reduce(x, "max", lengths=np.array([1, 2]))""",
    "ppo_loss": f"{_TOKENS}loss = bc.ppo_loss(policy, old, advantages, mask)",
    "syrk": f"{_X}y = bc.syrk(x)",
    "syrk_backward": f"""{_X}dy, c = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
dx, dc = bc.syrk_backward(dy, x, c)""",
    "prelu": f"{_X}y = bc.prelu(x, np.float32([0.25]))",
    "prelu_backward": f"{_ROWS}dx, dweight = bc.prelu_backward(x2, x1, np.float32([0.25]))",
    "renorm": f"{_X}y = bc.renorm(x, 2, 0, 1.0)",
    "renorm_backward": f"{_ROWS}dx = bc.renorm_backward(x2, x1, 2, 0, 1.0)",
    "scatter_reduce": f"""{_X}index = np.array([[0, 1, 1], [2, 2, 0], [1, 0, 3]])
y = bc.scatter_reduce(x, index, x[:, :3], "amax", axis=1)""",
    "scatter_reduce_backward": f"""{_X}index = np.array([[0, 1, 1], [2, 2, 0], [1, 0, 3]])
dx, dsrc = bc.scatter_reduce_backward(np.ones_like(x), x, index, x[:, :3], None, "mean", axis=1)""",
    "where": f"{_MASK}y = bc.where(mask, x, 0.0)",
    "where_backward": f"{_MASK}db, dc = bc.where_backward(x, mask, x, x)",
    **{
        f"{name}_backward": f"{_PAIR}dy = np.ones((3, 4), np.float32)\n{made} = bc.{name}_backward(dy, a, b)"
        for name, made in _GRADIENTS.items()
    },
    "associative_scan": f'{_X}y = bc.associative_scan("add", x, axis=1)',
    "betainc": f"{_PAIR}y = bc.betainc(a, b, np.float32(a / 5))",
    "hyp2f1": f"{_PAIR}y = bc.hyp2f1(a, b, 2.5, np.float32(a / 5))",
    "hyp2f1_backward": f"{_PAIR}dx = bc.hyp2f1_backward(np.ones((3, 4), np.float32), a, b, 2.5, np.float32(a / 5))",
    "hyp1f1": f"{_PAIR}y = bc.hyp1f1(a, b, np.float32(a / 5))",
    "hyp1f1_backward": f"{_PAIR}dx = bc.hyp1f1_backward(np.ones((3, 4), np.float32), a, b, np.float32(a / 5))",
    "betainc_backward": f"{_PAIR}dx = bc.betainc_backward(np.ones((3, 4), np.float32), a, b, np.float32(a / 5))",
    "bessel_jn": f"{_X}y = bc.bessel_jn(x, 3)",
    "jn": f"{_X}y = bc.jn(2, x)",
    "jn_backward": f"{_X}dx = bc.jn_backward(np.ones((3, 4), np.float32), 2, x)",
    "batch_norm": f"{_IMAGES}mean, var = np.zeros(4, np.float32), np.ones(4, np.float32)\n"
    "y = bc.batch_norm(x, mean, var, training=True)  # which moves mean and var",
    "batch_norm_backward_elemt": f"""{_IMAGES}mean, rstd = bc.batch_norm_stats(x)
sum_dy, sum_dy_xhat = bc.batch_norm_backward_reduce(x, x, mean, rstd)  # to be added up over devices
dx = bc.batch_norm_backward_elemt(x, x, mean, rstd, None, sum_dy, sum_dy_xhat, 32)""",
    "batch_norm_backward_reduce": f"""{_IMAGES}mean, rstd = bc.batch_norm_stats(x)
sum_dy, sum_dy_xhat = bc.batch_norm_backward_reduce(x, x, mean, rstd)""",
    "batch_norm_elemt": f"""{_IMAGES}mean, rstd = bc.batch_norm_stats(x)
y = bc.batch_norm_elemt(x, None, None, mean, rstd)""",
    "batch_norm_gather_stats_with_counts": f"""{_IMAGES}stats = [bc.batch_norm_stats(part) for part in (x[:1], x[1:])]
mean, rstd = (np.stack(one) for one in zip(*stats))
mean, rstd = bc.batch_norm_gather_stats_with_counts(mean, rstd, np.array([16, 16]))""",
    "batch_norm_stats": f"{_IMAGES}mean, rstd = bc.batch_norm_stats(x)",
    "group_norm": f"{_IMAGES}y = bc.group_norm(x, 2)",
    "instance_norm": f"{_IMAGES}y = bc.instance_norm(x)",
    "native_batch_norm": f"{_IMAGES}y, mean, rstd = bc.native_batch_norm(x)",
    "dropout_add_layer_norm": f"{_ROWS}y, h = bc.dropout_add_layer_norm(x1, x2, p=0.25, seed=7)",
    "dropout_add_rms_norm": f"{_ROWS}y, h = bc.dropout_add_rms_norm(x1, x2, p=0.25, seed=7)",
    "gated_rms_norm": f"{_ROWS}y = bc.gated_rms_norm(x1, x2)",
    "norm_cast_transpose": f"{_X}y, yt = bc.norm_cast_transpose(x, kind='rms_norm', scale=2.0)",
    "layer_norm_quantize": f"{_X}y, scales = bc.layer_norm_quantize(x)",
    "local_response_norm": f"{_IMAGES}y = bc.local_response_norm(x, 3)",
    "local_response_norm_backward": f"{_IMAGES}dx = bc.local_response_norm_backward(np.ones_like(x), x, 3)",
    "layer_norm_linear": f"{_X}weight = np.ones((5, 4), np.float32)\ny = bc.layer_norm_linear(x, weight)",
    "load_balancing_loss": f"{_X}loss = bc.load_balancing_loss(x, np.array([[0, 3], [1, 2], [0, 1]]))",
    "modulated_layer_norm": f"{_ROWS}y = bc.modulated_layer_norm(x1, x2[:1], x2[1:2])",
    "rms_norm_linear": f"{_X}weight = np.ones((5, 4), np.float32)\ny = bc.rms_norm_linear(x, weight)",
    "rms_norm_quantize": f"{_X}y, scales = bc.rms_norm_quantize(x)",
    "fp8_dequantize": f"{_X}y = bc.fp8_dequantize(bc.fp8_cast(x, scale=16.0), 1 / 16)",
    "fp8_quantize": f"{_X}y, scale_inv = bc.fp8_quantize(x)",
    "hadamard_quantize": f"{_X}y, scales = bc.hadamard_quantize(x, normalized=True)",
    "hadamard_transform": f"{_X}y = bc.hadamard_transform(x, normalized=True)",
    "standardize": f"{_X}y = bc.standardize(x, axis=0)",
    "spectral_norm": f"""{_X}u, v = bc.spectral_norm_step(x, np.ones(3, np.float32), np.ones(4, np.float32), 5)
y = bc.spectral_norm(x, u, v)""",
    "spectral_norm_backward": f"""{_X}u, v = bc.spectral_norm_step(x, np.ones(3, np.float32), np.ones(4, np.float32), 5)
dx = bc.spectral_norm_backward(np.ones_like(x), x, u, v)""",
    "spectral_norm_step": f"{_X}u, v = bc.spectral_norm_step(x, np.ones(3, np.float32), np.ones(4, np.float32))",
    "weight_norm": f"{_X}y = bc.weight_norm(x, np.ones((3, 1), np.float32))",
    "weight_norm_backward": f"""{_X}g = np.ones((3, 1), np.float32)
dx, dg = bc.weight_norm_backward(np.ones_like(x), x, g)""",
    "poly_norm": f"{_X}y = bc.poly_norm(x, np.ones(3, np.float32), np.zeros(1, np.float32))",
    "poly_norm_backward": f"""{_X}dy = np.ones((3, 4), np.float32)
dx, dweight, dbias = bc.poly_norm_backward(dy, x, np.ones(3, np.float32))""",
    "reduce_window": f'{_X}y = bc.reduce_window(x, "max", window_dimensions=(1, 2), padding="SAME")',
    "sph_harm_y": f"{_X}y = bc.sph_harm_y(3, 2, np.abs(x), x)",
    "sph_legendre_p": f"{_X}y = bc.sph_legendre_p(3, 2, np.abs(x))",
    "sph_legendre_p_backward": f"""{_X}dy = np.ones((3, 4), np.float32)
dtheta = bc.sph_legendre_p_backward(dy, 3, 2, np.abs(x))""",
    "choose": f"{_ROWS}y = bc.choose(np.array([0, 1, 1, 0]), [x1, x2])",
    "corrcoef_backward": f"{_X}dx = bc.corrcoef_backward(np.ones((3, 3), np.float32), x)",
    "cov_backward": f"{_X}dx = bc.cov_backward(np.ones((3, 3), np.float32), x)",
    **{
        f"dropout{n}d": f"{_RNG}x = rng.standard_normal((2, 3{', 4' * n}), dtype=np.float32)\n"
        f"y = bc.dropout{n}d(x, 0.25, seed=7)"
        for n in (1, 2, 3)
    },
    "frexp_backward": f"{_X}mantissa, exponent = bc.frexp(x)\ndx = bc.frexp_backward(mantissa, exponent)",
    "gradient": f"{_X}rows, columns = bc.gradient(x)",
    "gradient_backward": f"{_X}dx = bc.gradient_backward(x, axis=-1)",
    "embedding_add": f"""{_RNG}words, places = (rng.standard_normal((5, 4), dtype=np.float32) for _ in range(2))
y = bc.embedding_add(np.array([[3, 1, 1]]), words, np.array([0, 1, 2]), places)""",
    "embedding_bag_tables": f"""{_RNG}weight = rng.standard_normal((5, 4), dtype=np.float32)
indices = np.array([[[0, 1], [1, 1]], [[2, 0], [1, -1]]])
y = bc.embedding_bag_tables(indices, weight, np.array([0, 2, 5]))""",
    "quantized_embedding": """weight = np.arange(20, dtype=np.int8).reshape(5, 4)
y = bc.quantized_embedding(np.array([3, 1]), weight, np.full(5, 0.5, np.float32))""",
    "quantized_embedding_bag": """weight = np.arange(20, dtype=np.int8).reshape(5, 4)
indices, offsets = np.array([0, 2, 2, 4, 1]), np.array([0, 3])
y = bc.quantized_embedding_bag(indices, weight, np.full(5, 0.5, np.float32), offsets=offsets, mode="sum")""",
    "vocab_parallel_embedding": f"""{_RNG}weight = rng.standard_normal((5, 4), dtype=np.float32)
y = bc.vocab_parallel_embedding(np.array([12, 3, 11]), weight, 10)""",
    "embedding_bag": f"""{_RNG}weight = rng.standard_normal((5, 4), dtype=np.float32)
indices, offsets = np.array([0, 2, 2, 4, 1]), np.array([0, 3])
y = bc.embedding_bag(indices, weight, offsets, mode="sum")""",
    "integer_pow": f"{_X}y = bc.integer_pow(x, 3)",
    "integer_pow_backward": f"{_ROWS}dx = bc.integer_pow_backward(x2, x1, 3)",
    "piecewise": f"{_X}y = bc.piecewise(x, [x < 0], [0.0, bc.sqrt])",
    "select": f"{_ROWS}y = bc.select([x1 > 1, x2 > 1], [x1, x2], 0.0)",
    "select_n": f"{_ROWS}y = bc.select_n(x1 > x2, x1, x2)",
    **LAYOUT,
    **RANDOM,
    **QUANTIZED,
    **SORT,
}  # fmt: skip
