"""The functions of `torch.nn.functional` and `torch`, spelled as there, on arrays of every package.

    import baracuda_py.nn.functional as F
    F.softmax(x, dim=-1); F.sum(x, dim=(0, 1), keepdim=True); F.gelu(x, approximate="tanh"); F.relu(x, inplace=True)

Every function of this package is here by its own name, too, and takes its own keywords beside PyTorch's. What has
another form there than here is written below.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .._exports import EXPORTS
from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.views import shape_of, with_axis
from ..interop.dynamo import opaque
from .spelling import ORDERS, spelled, variadic

_OWN = (
    "gelu", "rms_norm", "scaled_dot_product_attention", "kl_div", "cross_entropy", "max", "min", "equal", "take",
    "unfold",
)  # fmt: skip
_OTHER = {"swish": "silu", "logsigmoid": "log_sigmoid", "scatter_": "scatter", "mul_": "mul"}


def _bc(name: str) -> Callable[..., Any]:
    """A function of this package."""
    return getattr(import_module("baracuda_py"), name)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = _bc(name)
    if isinstance(function, type) or variadic(function) or not (hasattr(function, "plan") or name in ORDERS):
        return function
    made = globals()[name] = spelled(name, function)
    return made


def __dir__() -> list[str]:
    return sorted({*_OWN, *(name for name in EXPORTS if not name[0].isupper())})


@opaque
def gelu(input: Any, approximate: str = "none", **more: Any) -> Any:
    """x Φ(x), or with approximate="tanh" the approximation by tanh (torch.nn.functional.gelu)."""
    if approximate not in ("none", "tanh"):
        raise InvalidProblemError(f'approximate must be "none" or "tanh", got {shown(approximate)}')
    return _bc("gelu_tanh" if approximate == "tanh" else "gelu")(input, **more)


@opaque
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None, **more: Any) -> Any:
    """x / sqrt(mean(x²) + eps) · weight over the last axes (torch.nn.functional.rms_norm).

    eps is by default the distance from 1 to the next number of the element, of float32 for 16-bit floats.
    """
    eps = read(input, "input").element.acc.limits.eps if eps is None else eps
    return _bc("rms_norm")(input, weight, normalized_shape=normalized_shape, eps=eps, **more)


@opaque
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ + mask) v (torch.nn.functional.scaled_dot_product_attention): [batch, heads, tokens, d].

    Arrays of three axes are [heads, tokens, d]. With enable_gqa key and value may have fewer heads.
    """
    shapes = [shape_of(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value"))]
    if len({len(shape) for shape in shapes}) != 1 or len(shapes[0]) not in (3, 4):
        raise InvalidProblemError(f"query, key and value must have 4 axes each, or 3, got shapes {shapes}")
    if not enable_gqa and shapes[0][-3] != shapes[1][-3]:
        raise InvalidProblemError(f"query has {shapes[0][-3]} heads and key {shapes[1][-3]}; pass enable_gqa=True")
    apart = len(shapes[0]) == 3
    if apart:
        query, key, value = (with_axis(x, 0, n) for x, n in ((query, "query"), (key, "key"), (value, "value")))
    facts = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    y = _bc("flash_sdpa")(query, key, value, attn_mask, **facts, **more)
    return y[0] if apart else y


@opaque
def kl_div(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """target (log target - input), its mean or sum (torch.nn.functional.kl_div)."""
    if size_average is not None or reduce is not None:
        raise InvalidProblemError('size_average and reduce are given as reduction="none", "mean" or "sum"')
    return _bc("kl_div_loss")(input, target, reduction=reduction, log_target=log_target, **more)


@opaque
def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0, **more: Any,
) -> Any:  # fmt: skip
    """Cross entropy of logits against classes or probabilities (torch.nn.functional.cross_entropy).

    The classes are along axis 1, or 0 of a single row. Keywords of `baracuda_py.cross_entropy` are taken, too.
    """
    if size_average is not None or reduce is not None:
        raise InvalidProblemError('size_average and reduce are given as reduction="none", "mean" or "sum"')
    more.setdefault("axis", 1 if len(shape_of(input, "input")) > 2 else -1)
    facts = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
    return _bc("cross_entropy")(input, target, weight, **facts, **more)


def _extreme(which: str, input: Any, dim: Any, keepdim: bool, more: dict[str, Any]) -> Any:
    if dim is None:
        return _bc(f"a{which}")(input, **more)
    if not isinstance(dim, int):
        return _bc(f"{which}imum")(input, dim, **more)
    return _bc(f"{which}_with_index")(input, axis=dim, keepdims=keepdim, **more)


@opaque
def max(input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """The largest element; (values, indices) along `dim`; or the larger of two arrays (torch.max)."""
    return _extreme("max", input, more.pop("other", dim), keepdim, more)


@opaque
def min(input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """The smallest element; (values, indices) along `dim`; or the smaller of two arrays (torch.min)."""
    return _extreme("min", input, more.pop("other", dim), keepdim, more)


@opaque
def equal(input: Any, other: Any, **more: Any) -> Any:
    """Whether two arrays have one shape and equal elements (torch.equal), as a 0-d array: nothing waits for it."""
    return _bc("array_equal")(input, other, **more)


@opaque
def take(input: Any, index: Any, **more: Any) -> Any:
    """The elements of the flattened input at `index` (torch.take)."""
    return _bc("take")(input.reshape(-1), index, **more)


@opaque
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, **more: Any,
) -> Any:  # fmt: skip
    """The windows of images as columns (torch.nn.functional.unfold); `baracuda_py.unfold` is Tensor.unfold."""
    return _bc("im2col")(input, kernel_size, dilation, padding, stride, **more)
