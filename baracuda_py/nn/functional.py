"""The functions of `torch.nn.functional` and `torch`, spelled as there, on arrays of every package.

    import baracuda_py.nn.functional as F
    F.softmax(x, dim=-1); F.sum(x, dim=(0, 1), keepdim=True); F.gelu(x, approximate="tanh"); F.relu(x, inplace=True)

Every function of this package is here by its own name, too, and takes its own keywords beside PyTorch's. Operands of
several dtypes are cast as torch casts them (`promotion`). What has another form there than here is written below, or by
what it does in `reductions`, `indexing`, `layouts` and `drawing`, and in `counted` where the shape of a result depends
on values.
"""

from __future__ import annotations

import math
from typing import Any

from .._absent import AbsentName
from .._exports import EXPORTS
from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.views import shape_of, with_axis
from . import counted, drawing, indexing, layouts, reductions
from .arguments import reduction_of
from .promotion import brought_together
from .spelling import bc, has_spelling, like_input, own, spelled

_OWN = {
    counted: "argwhere bincount masked_select nonzero one_hot repeat_interleave unique unique_consecutive where",
    drawing: "bernoulli randint randint_like",
    indexing: "gather scatter scatter_add scatter_reduce take",
    layouts: "block_diag broadcast_to complex fill polar select tensor_split transpose transpose_copy unravel_index "
    "view_copy",
    reductions: "addbmm addmm addmv addr all angle any baddbmm conj conj_physical cross equal float_power gradient "
    "histogram histogramdd inner max min nansum real sgn sign std std_mean tensordot var var_mean",
}
_FOUND = {name: getattr(module, name) for module, names in _OWN.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _FOUND:
        made = _FOUND[name]
    elif name.startswith("_") or name not in EXPORTS:
        raise AbsentName(__name__, name, {*_FOUND, *EXPORTS})
    else:
        made = spelled(name) if has_spelling(name) else bc(name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*_FOUND, *_HERE, *(name for name in EXPORTS if not name[0].isupper())})


_HERE = (
    "cross_entropy", "gelu", "kl_div", "native_group_norm", "rms_norm", "scaled_dot_product_attention", "unfold",
)  # fmt: skip


@own
def gelu(input: Any, approximate: str = "none", **more: Any) -> Any:
    """x Φ(x), or with approximate="tanh" the approximation by tanh (torch.nn.functional.gelu)."""
    if approximate not in ("none", "tanh"):
        raise InvalidProblemError(f'approximate must be "none" or "tanh", got {shown(approximate)}')
    return bc("gelu_tanh" if approximate == "tanh" else "gelu")(input, **more)


@own
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, **more: Any) -> Any:
    """x / sqrt(mean(x²) + eps) · weight over the last axes (torch.nn.functional.rms_norm).

    eps is by default the distance from 1 to the next number of the element, of float32 for 16-bit floats.
    """
    eps = read(input, "input").element.acc.limits.eps if eps is None else eps
    return bc("rms_norm")(input, weight, normalized_shape=normalized_shape, eps=eps, **more)


@own
def native_group_norm(
    input: Any, weight: Any = None, bias: Any = None, N: Any = None, C: Any = None, HxW: Any = None,
    group: Any = None, eps: float = 1e-5, *, num_groups: Any = None, **more: Any,
) -> Any:  # fmt: skip
    """(y, mean, rstd) of group_norm (torch.native_group_norm); N, C and HxW must be what the input's shape says."""
    shape = shape_of(input, "input")
    for name, given, found in (("N", N, shape[:1]), ("C", C, shape[1:2]), ("HxW", HxW, (math.prod(shape[2:]),))):
        if given is not None and (given,) != found:
            raise InvalidProblemError(f"{name} must be {found} of the input {shape}, got {shown(given)}")
    groups = group if num_groups is None else num_groups
    return bc("native_group_norm")(input, groups, weight, bias, eps, **more)


@own
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ + mask) v (torch.nn.functional.scaled_dot_product_attention): [batch, heads, tokens, d].

    Arrays of fewer axes are [heads, tokens, d] and [tokens, d]; further axes stand before the batch. With enable_gqa
    key and value may have fewer heads.
    """
    shapes = [shape_of(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value"))]
    axes = len(shapes[0])
    if len({len(shape) for shape in shapes}) != 1 or axes < 2:
        raise InvalidProblemError(f"query, key and value must have as many axes each, 2 or more, got shapes {shapes}")
    if axes > 2 and not enable_gqa and shapes[0][-3] != shapes[1][-3]:
        raise InvalidProblemError(f"query has {shapes[0][-3]} heads and key {shapes[1][-3]}; pass enable_gqa=True")
    facts = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    operands = [_four_axes(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value"))]
    mask = attn_mask
    if mask is not None and axes != 4 and len(shape_of(mask, "attn_mask")) > 2:
        mask = _four_axes(mask, "attn_mask")
    y = bc("flash_sdpa")(*operands, mask, **facts, **more)
    return y if axes == 4 else bc("reshape")(y, (*shapes[0][:-1], shapes[2][-1]))


def _four_axes(x: Any, name: str) -> Any:
    """x with one batch axis before [heads, tokens, d]."""
    while len(shape_of(x, name)) < 4:
        x = with_axis(x, 0, name)
    shape = shape_of(x, name)
    return x if len(shape) == 4 else bc("flatten")(x, 0, len(shape) - 4)


@own
def kl_div(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """target (log target - input), its mean or sum (torch.nn.functional.kl_div)."""
    facts = {"size_average": size_average, "reduce": reduce, "reduction": reduction, "log_target": log_target}
    reduction_of(facts)
    found = brought_together("kl_div", {"x": input, "target": target})
    return like_input(bc("kl_div_loss")(found["x"], found["target"], **facts, **more), found["x"])


@own
def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0, **more: Any,
) -> Any:  # fmt: skip
    """Cross entropy of logits against classes or probabilities (torch.nn.functional.cross_entropy).

    The classes are along axis 1, or 0 of a single row. Keywords of `baracuda_py.cross_entropy` are taken, too.
    """
    facts = {"size_average": size_average, "reduce": reduce, "reduction": reduction}
    reduction_of(facts)
    more.setdefault("axis", 1 if len(shape_of(input, "input")) > 2 else -1)
    facts |= {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    return like_input(bc("cross_entropy")(input, target, weight, **facts, **more), input)


@own
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, **more: Any,
) -> Any:  # fmt: skip
    """The windows of images as columns (torch.nn.functional.unfold); `baracuda_py.unfold` is Tensor.unfold."""
    return bc("im2col")(input, kernel_size, dilation, padding, stride, **more)
