"""Layers that train in fp8 by delayed scales, whose casts are fused with the norm or the activation before them."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...core.checked import shown
from ...core.element import FP8, ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...ops.gated.gated_cast_transpose import KINDS
from ...ops.quant_gemm.fp8_linear import _product
from ..untyped import torch

E = ElementKind
_INPUTS = (E.FP8E4M3, E.FP8E4M3)
_SLOPES = (FP8[1], E.FP8E4M3)
NORMS = (None, "rms_norm", "layer_norm")


class _Delayed(torch.nn.Module):  # type: ignore[misc]
    """A layer that begins with a norm, or with none, and the recipes of its tensors."""

    tensors = (2, 1)  # of the forward, and slopes of the backward

    def __init__(self, in_features: int, norm: str | None, eps: float, slots: int, given: dict[str, Any]) -> None:
        super().__init__()
        if norm not in NORMS:
            raise InvalidProblemError(f"norm must be None, 'rms_norm' or 'layer_norm', got {shown(norm)}")
        self.in_features, self.norm, self.eps, self.slots = in_features, norm, eps, slots
        self.norm_weight = None if norm is None else torch.nn.Parameter(torch.ones(in_features, **given))
        self.norm_bias = torch.nn.Parameter(torch.zeros(in_features, **given)) if norm == "layer_norm" else None
        self.recipes: tuple[bc.Fp8Recipe, bc.Fp8Recipe] | None = None

    def update(self) -> None:
        """Ends a step: the scales of the next come from the largest sizes of those before; not before the backward."""
        for recipe in self.recipes or ():
            recipe.update()

    def _enter(self, x: Any) -> tuple[Any, Any]:
        """x as rows of 16 bits, and the recipes, on its device."""
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise UnsupportedError(f"x must be float16 or bfloat16, got {x.dtype}; cast it")
        if x.shape[-1:] != (self.in_features,):
            raise InvalidProblemError(f"x must be [..., {self.in_features}], got shape {tuple(x.shape)}")
        if self.recipes is None or self.recipes[0].scale.device != x.device:
            kinds = (E.FP8E4M3, FP8[1])
            self.recipes = tuple(  # type: ignore[assignment]
                bc.Fp8Recipe(n, slots=self.slots, to_element=kind, like=x)
                for n, kind in zip(self.tensors, kinds, strict=True)
            )
        return x.reshape(-1, self.in_features), self.recipes


class _Turned:
    """Codes of a matrix, of its transpose, and what both are multiplied by."""

    def __init__(self, codes: Any, turned: Any, inverse: Any) -> None:
        self.upright, self.turned = ((one, inverse.reshape(1, 1)) for one in (codes, turned))


def _cast(recipe: Any, tensor: int, function: Any, *operands: Any, **facts: Any) -> tuple[_Turned, tuple[Any, ...]]:
    """What a fused cast makes by the scale of a tensor, whose amax it raises."""
    scales = {"amax": recipe.amax(tensor), "scale": recipe.scale_of(tensor)}
    y, yt, *others = function(*operands, **scales, to_element=recipe.to_element, **facts)
    return _Turned(y, yt, recipe.inverse_of(tensor)), tuple(others)


def _normed(layer: _Delayed, recipe: Any, x: Any, weight: Any, bias: Any) -> tuple[_Turned, tuple[Any, ...]]:
    """Codes of x behind the layer's norm, and the statistics that its gradient takes."""
    if layer.norm is None:
        return _cast(recipe, 0, bc.fp8_cast_transpose, x)
    options = {"kind": layer.norm, "eps": layer.eps, "return_rstd": True, "return_mean": layer.norm == "layer_norm"}
    return _cast(recipe, 0, bc.norm_cast_transpose, x, weight, bias, **options)


def _norm_back(layer: _Delayed, dy: Any, x: Any, weight: Any, statistics: Any) -> tuple[Any, Any, Any]:
    """Gradients of x, and of the norm's weight and bias."""
    if layer.norm is None:
        return dy, None, None
    wanted: dict[str, Any] = {"return_dx": True, "return_dweight": True}
    if layer.norm == "rms_norm":
        return *bc.rms_norm_backward(dy, x, statistics[0], weight, **wanted), None
    mean, rstd = statistics
    dx, dweight, dbias = bc.layer_norm_backward(dy, x, mean, rstd, weight, **wanted, return_dbias=True)
    return dx, dweight, dbias


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, x: Any, norm_weight: Any, norm_bias: Any, weight: Any, bias: Any, layer: Any, recipes: Any
    ) -> Any:
        codes, ctx.statistics = _normed(layer, recipes[0], x, norm_weight, norm_bias)
        weights, _ = _cast(recipes[0], 1, bc.fp8_cast_transpose, weight)
        ctx.save_for_backward(x, norm_weight, *codes.turned, *weights.turned)
        ctx.layer, ctx.slopes, ctx.biased = layer, recipes[1], bias is not None
        return _product(codes.upright, weights.upright, E.of(x.dtype), _INPUTS, {}, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Any) -> Any:
        x, norm_weight, *kept = ctx.saved_tensors
        element, (slopes, _) = E.of(x.dtype), _cast(ctx.slopes, 0, bc.fp8_cast_transpose, dy)
        dn = _product(slopes.upright, kept[2:], element, _SLOPES, {})
        dweight = _product(slopes.turned, kept[:2], element, _SLOPES, {})
        found = _norm_back(ctx.layer, dn, x, norm_weight, ctx.statistics)
        return *found, dweight, bc.sum(dy, axis=0) if ctx.biased else None, None, None


class Fp8NormLinear(_Delayed):
    """norm(x) Wᵀ + bias whose products, forward and backward, are of fp8 by delayed scales (TE's LayerNormLinear).

    norm: "rms_norm", "layer_norm" or None. x is float16 or bfloat16, [..., in_features], and so are the parameters, or
    float32 as master copies (those of the norm are read so). The norm's result is cast, and turned for dW, where it is
    made (`norm_cast_transpose`); x, its statistics and turned codes are kept, a byte a number. x and weight are
    float8_e4m3fn, dy float8_e5m2, each by the scale that `update()` made of earlier steps' largest sizes: call it (or
    `update_fp8(model)`) once a step, after the backward. Scales begin at 1.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, norm: str | None = "rms_norm",
        eps: float = 1e-6, slots: int = 16, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, norm, eps, slots, given)
        made = torch.nn.Linear(in_features, out_features, bias, **given)
        self.weight, self.bias, self.out_features = made.weight, made.bias, out_features

    def forward(self, input: Any) -> Any:
        """[…, in_features] to […, out_features], in x's dtype."""
        x, recipes = self._enter(input)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        y = _Linear.apply(x, self.norm_weight, self.norm_bias, self.weight.to(x.dtype), bias, self, recipes)
        return y.reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, norm={self.norm!r}"


class _Mlp(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, x: Any, norm_weight: Any, norm_bias: Any, first: Any, second: Any, layer: Any, recipes: Any
    ) -> Any:
        recipe, element = recipes[0], E.of(x.dtype)
        codes, ctx.statistics = _normed(layer, recipe, x, norm_weight, norm_bias)
        ups, _ = _cast(recipe, 1, bc.fp8_cast_transpose, first)
        both = _product(codes.upright, ups.upright, element, _INPUTS, {})
        inner, _ = _cast(recipe, 2, bc.gated_cast_transpose, *both.chunk(2, -1), kind=layer.kind)
        downs, _ = _cast(recipe, 3, bc.fp8_cast_transpose, second)
        ctx.save_for_backward(
            x, norm_weight, both, *codes.turned, *ups.turned, *inner.turned, *downs.turned
        )  # fmt: skip
        ctx.layer, ctx.slopes = layer, recipes[1]
        return _product(inner.upright, downs.upright, element, _INPUTS, {})

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Any) -> Any:
        x, norm_weight, both, *kept = ctx.saved_tensors
        codes, ups, inner, downs = (kept[n : n + 2] for n in range(0, 8, 2))
        element, layer = E.of(x.dtype), ctx.layer
        slopes, _ = _cast(ctx.slopes, 0, bc.fp8_cast_transpose, dy)
        dsecond = _product(slopes.turned, inner, element, _SLOPES, {})
        du = _product(slopes.upright, downs, element, _SLOPES, {})
        parts = both.chunk(2, -1)
        slopes, _ = _cast(ctx.slopes, 1, bc.gated_cast_transpose_backward, du, *parts, kind=layer.kind)
        dfirst = _product(slopes.turned, codes, element, _SLOPES, {})
        dn = _product(slopes.upright, ups, element, _SLOPES, {})
        return *_norm_back(layer, dn, x, norm_weight, ctx.statistics), dfirst, dsecond, None, None


class Fp8GatedMLP(_Delayed):
    """(act(n Wgᵀ) · n Wuᵀ) Wdᵀ of n = norm(x), whose products are of fp8 by delayed scales (TE's LayerNormMLP).

    gate_up is [2 hidden_features, in_features], the gate's rows first; down [in_features, hidden_features]. kind:
    swiglu, geglu, geglu_tanh, reglu or relu2_glu; norm, scales and `update()` as of `Fp8NormLinear`. The activation,
    and its gradient, are cast and turned where they are made (`gated_cast_transpose`,
    `gated_cast_transpose_backward`): neither is written in 16 bits.
    """

    tensors = (4, 2)

    def __init__(
        self, in_features: int, hidden_features: int, *, kind: str = "swiglu", norm: str | None = None,
        eps: float = 1e-6, slots: int = 16, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, norm, eps, slots, given)
        if kind not in (names := [one.value for one in KINDS]):
            raise InvalidProblemError(f"kind must be {', '.join(names)}, got {shown(kind)}")
        self.hidden_features, self.kind = hidden_features, kind
        self.gate_up = torch.nn.Linear(in_features, 2 * hidden_features, False, **given).weight
        self.down = torch.nn.Linear(hidden_features, in_features, False, **given).weight

    def forward(self, input: Any) -> Any:
        """[…, in_features] to the same shape and dtype."""
        x, recipes = self._enter(input)
        weights = (one.to(x.dtype) for one in (self.gate_up, self.down))
        return _Mlp.apply(x, self.norm_weight, self.norm_bias, *weights, self, recipes).reshape(input.shape)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{self.in_features}, {self.hidden_features}, kind={self.kind!r}, norm={self.norm!r}"


def update_fp8(model: Any) -> None:
    """Ends a step of all layers of a model that have delayed scales: after the backward, once."""
    for module in model.modules():
        if isinstance(module, _Delayed):
            module.update()
