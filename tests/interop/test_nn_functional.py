"""`baracuda_py.nn.functional`: PyTorch's names, orders and keywords give PyTorch's results."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnknownKeywordError
from baracuda_py.nn.orders import ORDERS

torch = pytest.importorskip("torch")
F, T = torch.nn.functional, torch
OURS = bc.nn.functional


def x(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape))


X, Y, POSITIVE = x(3, 4), x(3, 5)[:, :4], x(3, 4).abs() + 0.1
INDEX = torch.tensor([[0, 2, 1, 1], [1, 0, 2, 2]])

CALLS = """
add(X, 0.5)
add(input=X, other=Y, alpha=2)
sub(X, 0.5)
div(X, 0.5)
remainder(X, 0.5)
gt(X, 0.5)
pow(POSITIVE, 0.5)
where(X > 0, X, 0.0)
where(condition=X > 0, input=X, other=Y)
clamp(X, -0.5, 0.5)
clamp(input=X, max=0.2)
lerp(X, Y, 0.25)
lerp(input=X, end=Y, weight=0.5)
addcmul(X, X, Y, value=2.0)
var(X, 1, False)
std(X, dim=0, correction=2)
std(X, 0, unbiased=False)
max(X)
max(X, Y)
max(X, other=Y)
min(X, 0, True)
norm(X, p=1, dim=1, keepdim=True)
renorm(X, 2, 0, 1.0)
diff(X, 1, 0)
gather(X, 1, INDEX[:, :2])
index_select(X, 1, torch.tensor([0, 3]))
take(X, torch.tensor([0, 11, 5]))
scatter(X, 1, INDEX[:, :2], Y[:2, :2])
polygamma(1, POSITIVE + 1)
round(X, decimals=1)
nan_to_num(X, 1.0)
matmul(X, x(4, 5))
mm(input=X, mat2=x(4, 5))
mv(X, x(4))
addmm(x(5), X, x(4, 5), beta=0.5)
baddbmm(x(2, 3, 5), x(2, 3, 4), x(2, 4, 5), alpha=2.0)
dot(x(4), x(5)[:4])
einsum("ij,kj->ki", X, Y)
einsum("ij,kj,k", [X, Y, x(3)])
tensordot(X, x(4, 5), 1)
tensordot(X, Y, dims=([0, 1], [0, 1]))
kron(input=X, other=x(2, 1))
outer(x(3), vec2=x(4))
addr(input=X, vec1=x(3), vec2=x(4), beta=0.5)
addbmm(x(5), x(2, 3, 4), batch2=x(2, 4, 5), alpha=2.0)
bilinear(input1=X, input2=Y, weight=x(5, 4, 4), bias=x(5))
bilinear(X, Y, x(2, 4, 4))
matrix_power(x(2, 3, 3), 3)
chain_matmul(X, x(4, 5), x(5, 2))
isclose(X, X + 1e-9, 1e-6)
count_nonzero(X, 1)
sum(X.float(), dtype=torch.float64)
cumsum(X, 0, dtype=torch.float32)
softmax(X, dim=0, dtype=torch.float32)
softmin(X, 1)
glu(X, 1)
gelu(X, approximate="tanh")
elu(X, 0.5)
leaky_relu(X, 0.2)
celu(X, alpha=2.0)
hardtanh(X, -0.5, 0.25)
softplus(X, 2.0, 5.0)
threshold(X, 0.1, 7.0)
hardshrink(X, 0.3)
prelu(X, torch.tensor([0.3], dtype=torch.float64))
normalize(X, 1.0, 0)
normalize(X, dim=-1, p=2.0)
layer_norm(X, (4,))
layer_norm(X, [4], x(4), x(5)[:4], 1e-3)
layer_norm(X, normalized_shape=(3, 4))
rms_norm(X, (4,))
rms_norm(X, (4,), x(4), eps=1e-3)
linear(X, x(2, 4), x(2))
cosine_similarity(X, Y, 0)
pairwise_distance(X, Y, 1.0, keepdim=True)
cdist(X, Y, 1.0)
embedding(INDEX, x(5, 3))
embedding(input=INDEX, weight=x(5, 3), padding_idx=1)
embedding(INDEX, x(5, 3), None, 1.0, 2.0, True)
embedding_bag(INDEX.flatten(), x(5, 3), INDEX.new_tensor([0, 2]), mode="max")
cross_entropy(X, torch.tensor([0, 3, 1]))
cross_entropy(X, torch.tensor([0, 3, -100]), reduction="sum", label_smoothing=0.1)
cross_entropy(input=X, target=torch.tensor([0, 3, 1]), weight=POSITIVE[0])
mse_loss(X, Y)
mse_loss(X, Y, reduction="none")
l1_loss(X, Y, reduction="sum")
mse_loss(X, Y, weight=POSITIVE)
smooth_l1_loss(X, Y, beta=0.3)
huber_loss(X, Y, "sum", 0.7)
binary_cross_entropy(X.sigmoid(), Y.sigmoid(), POSITIVE)
binary_cross_entropy_with_logits(X, Y.sigmoid(), pos_weight=POSITIVE[0])
kl_div(X.log_softmax(-1), Y.softmax(-1), reduction="batchmean")
kl_div(X.log_softmax(-1), Y.log_softmax(-1), log_target=True)
poisson_nll_loss(X, Y.abs(), full=True)
gaussian_nll_loss(X, Y, POSITIVE[:, 0], eps=1e-3)
gaussian_nll_loss(X, Y, 0.3, True)
hinge_embedding_loss(X, Y.sign())
soft_margin_loss(X, Y.sign())
margin_ranking_loss(X, Y, Y.sign(), 0.1)
nll_loss(x(3, 4, 5), torch.arange(15).reshape(3, 5) % 4, POSITIVE[0], ignore_index=2)
cross_entropy(x(3, 4, 5), torch.arange(15).reshape(3, 5) % 4, POSITIVE[0], label_smoothing=0.2)
cross_entropy(x(3, 4, 5), x(3, 4, 5).softmax(1))
multi_margin_loss(X, torch.tensor([0, 3, 1]), 2, 0.5, POSITIVE[0])
multilabel_margin_loss(X, torch.tensor([[0, 3, -1, 1], [-1, 0, 0, 0], [1, 1, 2, 3]]))
multilabel_soft_margin_loss(X, Y.sigmoid(), POSITIVE[0])
cosine_embedding_loss(X, Y, torch.tensor([1, -1, 1]), 0.2)
triplet_margin_loss(X, Y, x(3, 4), 0.5, 3.0, swap=True)
triplet_margin_with_distance_loss(X, Y, x(3, 4), swap=True)
max_pool2d(x(2, 3, 8, 8), 3, 2, 1)
max_pool2d(x(2, 3, 8, 8), 2, return_indices=True)
avg_pool2d(x(2, 3, 8, 8), (3, 2), padding=1, count_include_pad=False)
avg_pool1d(x(2, 3, 8), 3, 2, 1, True)
lp_pool2d(x(2, 3, 8, 8).abs(), 2.0, 3, 2)
adaptive_avg_pool2d(x(2, 3, 8, 8), (3, 5))
adaptive_max_pool1d(x(2, 3, 8), 3)
pad(x(2, 3, 4, 5), (1, 2, 2, 1), "reflect")
pad(X, (1, -1), value=2.0)
unfold(x(2, 3, 4, 6), (2, 3), 2, 1, 1)
fold(x(2, 12, 6), (4, 3), (2, 2))
pixel_shuffle(x(2, 12, 4, 6), 2)
pixel_unshuffle(x(2, 3, 4, 6), downscale_factor=2)
channel_shuffle(x(2, 12, 4, 6), 3)
one_hot(INDEX, num_classes=4)
cat((X, Y), 1)
stack(tensors=[X, Y], dim=-1)
hstack((X, Y))
split(X, 2, 1)
split(X, [1, 3], dim=1)
chunk(X, 2, dim=1)
unbind(X, dim=1)
tensor_split(X, 3, dim=1)
hsplit(X, 2)
flatten(x(2, 3, 4), start_dim=1)
unflatten(X, dim=1, sizes=(2, 2))
squeeze(x(2, 1, 3), dim=1)
unsqueeze(X, dim=0)
movedim(x(2, 3, 4), 0, destination=2)
swapaxes(x(2, 3, 4), axis0=0, axis1=-1)
swapdims(x(2, 3, 4), dim0=0, dim1=-1)
narrow(X, 1, 1, 2)
narrow_copy(X, dim=1, start=1, length=2)
flip(X, (0, 1))
flip(X, dims=[1])
roll(X, (1, -2), (0, 1))
roll(X, shifts=1, dims=1)
rot90(X, 1, [0, 1])
tile(X, dims=(2, 1))
repeat_interleave(X, 2, dim=1)
repeat_interleave(X, torch.tensor([2, 0, 3]), 0, output_size=5)
tril(X, -1)
triu(X, diagonal=1)
diag(X[0], -1)
diagonal(x(2, 3, 4), 1, dim1=1, dim2=2)
diag_embed(X, 1, 0, 2)
diagonal_scatter(X, x(3), 1, 0, 1)
slice_scatter(X, x(3, 2), 1, 1, 4, 2)
slice_scatter(X, x(3, 2), dim=1, start=1, end=4, step=2)
select_scatter(X, x(3), 1, 2)
as_strided(X, (2, 2), (4, 1), 3)
combinations(x(5), 3)
full_like(X, fill_value=2.0)
scatter_reduce(X, 1, INDEX[:, :2], Y[:2, :2], "amax", include_self=False)
sort(X, 0, True)
sort(X, dim=1, descending=True, stable=True)
argsort(X, -1, True)
topk(X, 2, 0)
topk(X, k=2, dim=-1, largest=False, sorted=True)
kthvalue(X, 2, 0, True)
median(X, 1)
nanmedian(X, dim=1, keepdim=True)
mode(X.round(), 0)
quantile(X, 0.3, 1, True)
nanquantile(X, torch.tensor([0.2, 0.7], dtype=torch.float64), dim=0)
searchsorted(X.sort().values, Y[:, :2].contiguous(), right=True, out_int32=True)
searchsorted(sorted_sequence=X[0].sort().values, input=Y.contiguous(), side="right")
bucketize(Y, X[0].sort().values, right=True)
histc(X, 4, -1, 1)
isin(INDEX, torch.tensor([0, 2]), assume_unique=False, invert=True)
dropout2d(x(2, 3, 4, 5), 0.5, False)
dropout(X, 0.5, False)
alpha_dropout(X, 0.5)
max_pool1d_with_indices(x(2, 3, 8), 2, 1, padding=1)
max_pool2d_with_indices(input=x(2, 3, 8, 6), kernel_size=(2, 3), dilation=2, ceil_mode=True)
max_pool3d_with_indices(x(2, 4, 4, 6), 2, 2)
adaptive_max_pool1d_with_indices(x(2, 3, 8), 3)
adaptive_max_pool2d_with_indices(x(2, 3, 8, 6), output_size=(3, 2))
adaptive_max_pool3d_with_indices(x(2, 4, 4, 6), 2)
max_unpool1d(x(2, 2), torch.tensor([[0, 3], [1, 2]]), 2, output_size=(5,))
max_unpool2d(input=x(1, 1, 2), indices=torch.tensor([[[1, 6]]]), kernel_size=2, stride=2)
max_unpool3d(x(1, 1, 1, 2), torch.tensor([[[[1, 14]]]]), 2, 2, 0)
multi_head_attention_forward(x(5, 2, 8), x(6, 2, 8), x(6, 2, 8), 8, 2, x(24, 8), x(24), None, None, True, 0.0, \
x(8, 8), x(8), False, torch.zeros(2, 6).bool(), True, x(5, 6), average_attn_weights=False)
multi_head_attention_forward(x(5, 8), x(6, 8), x(6, 8), 8, 2, x(24, 8), None, None, None, False, 0.0, x(8, 8), None, \
need_weights=True, attn_mask=x(5, 6) > 2)
scaled_dot_product_attention(x(2, 4, 5, 8), x(2, 4, 6, 8), x(2, 4, 6, 7))
scaled_dot_product_attention(x(4, 5, 8), x(4, 5, 8), x(4, 5, 8), is_causal=True, scale=0.3)
scaled_dot_product_attention(x(2, 4, 5, 8), x(2, 2, 6, 8), x(2, 2, 6, 8), enable_gqa=True)
scaled_dot_product_attention(x(2, 4, 5, 8), x(2, 4, 6, 8), x(2, 4, 6, 8), x(5, 6) > 0.5)
""".strip().splitlines()
CALLS += [
    f"{name}(X)"
    for name in [
        "exp",
        "sin",
        "tanh",
        "neg",
        "abs",
        "square",
        "sigmoid",
        "erf",
        "isnan",
        "floor",
        "relu",
        "silu",
        "mish",
        "selu",
    ]
]
CALLS += [f"{name}(X)" for name in ["hardswish", "softsign", "logsigmoid", "gelu", "sum", "mean", "argmax"]]
CALLS += [
    f"{name}(X, Y)"
    for name in ["add", "sub", "mul", "div", "maximum", "atan2", "eq", "lt", "hypot", "fmod", "logaddexp", "copysign"]
]
CALLS += [f"{name}(X, dim=1, keepdim=True)" for name in ["sum", "mean", "prod", "argmax", "all", "var", "std", "amin"]]
CALLS += [f"{name}(X, {dim}, True)" for name in ["sum", "mean", "amax", "logsumexp"] for dim in (0, -1, (0, 1))]
CALLS += [
    f"{name}(X, -1)" for name in ["cumsum", "cumprod", "cummax", "logcumsumexp", "softmax", "log_softmax", "max", "min"]
]


@pytest.mark.parametrize("call", CALLS)
def test_calls_as_in_torch(call: str) -> None:
    name = call.partition("(")[0]
    module = F if hasattr(F, name) else T
    own, theirs = (eval(f"M.{call}", {**globals(), "M": one}) for one in (OURS, module))
    for a, b in zip(*(tuple(v) if isinstance(v, (tuple, list)) else (v,) for v in (own, theirs)), strict=True):
        assert torch.is_tensor(a) and a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-5 if b.dtype == torch.float32 else 1e-9, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("name", sorted({*ORDERS} & set(dir(bc))))
def test_torchs_keywords_are_those_of_the_row(name: str) -> None:
    """Where torch says its parameters, ours are those in that order."""
    theirs = getattr(F, name, None) or getattr(T, name, None)
    if theirs is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    try:
        said = list(inspect.signature(theirs).parameters)
    except (TypeError, ValueError):
        return
    own = [word.partition(":")[0] for word in ORDERS[name]]
    if "args" not in said:
        assert [word for word in said if word in own] == [word for word in own if word in said]
        assert len([word for word in own if word in said]) >= min(len(own), 2)


def test_in_place_and_out() -> None:
    a = np.float32([-1.0, 2.0])
    assert OURS.relu(a, inplace=True) is a and a.tolist() == [0.0, 2.0]
    out = np.empty(2, np.float32)
    assert OURS.leaky_relu(a - 1, 0.5, out=out) is out and out.tolist() == [-0.5, 1.0]
    assert OURS.elu(np.float64([-1.0]), inplace=False)[0] == np.expm1(-1.0)


def test_our_own_words_are_taken_too() -> None:
    a = np.arange(6.0).reshape(2, 3)
    assert OURS.sum(a, axis=1, keepdims=True).shape == OURS.sum(a, dim=1, keepdim=True).shape == (2, 1)
    assert OURS.rms_norm_backward is not None and OURS.ReduceKind is bc.ReduceKind
    assert {"softmax", "gelu", "mse_loss", "rms_norm"} <= set(dir(OURS))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: OURS.softmax(a, 1, 2, None, 4), r"softmax\(\) takes 4 positional arguments, 5 were given"),
        (lambda a: OURS.softmax(a, 1, dim=1), "has dim twice"),
        (lambda a: OURS.softmax(a, axs=1), "did you mean axis"),
        (lambda a: OURS.gelu(a, "erf"), 'approximate must be "none" or "tanh"'),
        (lambda a: OURS.mse_loss(a, a, reduction="max"), "reduction must be"),
        (lambda a: OURS.scaled_dot_product_attention(a, a, a[0]), "must have as many axes each, 2 or more"),
        (lambda a: OURS.embedding(a, a, sparse=True), "sparse"),
        (lambda a: OURS.searchsorted(a, a, side="top"), 'side must be "left" or "right"'),
    ],
)
def test_what_is_refused(call: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says):
        call(np.ones((2, 3), np.float32))


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conv2d_of_nothing'"):
        OURS.conv2d_of_nothing  # noqa: B018
    with pytest.raises(UnknownKeywordError):
        OURS.exp(np.ones(2), dim=1)


def test_the_signature_is_torchs() -> None:
    names = list(inspect.signature(OURS.cross_entropy).parameters)
    assert names[:3] == ["input", "target", "weight"] and "label_smoothing" in names
    assert list(inspect.signature(OURS.softmax).parameters)[:2] == ["input", "dim"]


@pytest.mark.parametrize(
    "call",
    [
        "tril_indices(3, 4, 1)",
        "arange(1, 8, 2, dtype=torch.float64)",
        "linspace(0.0, 1.0, 5, dtype=torch.float64)",
        "linspace(start=0.0, end=1.0, steps=5, dtype=torch.float64)",
        "eye(3, 4, dtype=torch.float32)",
        "zeros((2, 3), dtype=torch.float16)",
        "full((2, 3), 1.5, dtype=torch.float64)",
    ],
)
def test_what_is_made_of_no_array(call: str) -> None:
    own, theirs = (eval(f"M.{call}", {**globals(), "M": one}) for one in (OURS, T))
    assert own.dtype == theirs.numpy().dtype
    np.testing.assert_array_equal(own, theirs.numpy())


def test_draws_are_spelled_as_in_torch() -> None:
    """Their numbers are not torch's: shapes and elements are."""
    for made, shape, dtype in (
        (OURS.rand((2, 3), dtype="float64", seed=1), (2, 3), np.float64),
        (OURS.randn_like(np.ones(4, np.float32), seed=1), (4,), np.float32),
        (OURS.randint(0, 9, (2, 3), dtype="int32", seed=1), (2, 3), np.int32),
        (OURS.randperm(5, seed=1), (5,), np.int64),
        (OURS.bernoulli(np.full(3, 0.5), seed=1), (3,), np.float64),
        (OURS.normal(mean=np.zeros(3), std=1.0, seed=1), (3,), np.float64),
        (OURS.normal(0.0, 1.0, (2, 2), seed=1), (2, 2), np.float32),
        (OURS.poisson(np.ones(3, np.float32), seed=1), (3,), np.float32),
        (OURS.multinomial(np.ones((2, 3), np.float32), 4, True, seed=1), (2, 4), np.int64),
    ):
        assert made.shape == shape and made.dtype == dtype


def test_a_name_hides_no_function_of_the_module() -> None:
    """Names that were asked for are the module's from then on: `any`, which Python has, too, and no code here means."""
    assert all(callable(getattr(OURS, name)) for name in ("any", "sum", "round", "expm1", "logit"))
