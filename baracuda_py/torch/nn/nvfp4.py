"""A linear layer that trains by NVIDIA's recipe of NVFP4, emulated: numbers are those of fp4, products of bfloat16."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError, UnsupportedError
from ...expressions.elementwise import elementwise
from ..untyped import torch

_BLOCK, _TOP, _TOP_SCALE = 16, 6.0, 448.0
_SIZE = "minimum(abs(x) * inverse, 6)"
_STEP = f"where({_SIZE} < 2, 0.5, where({_SIZE} < 4, 1, 2))"
_NEAREST = elementwise(f"copysign(minimum(rint({_SIZE} / ({_STEP})) * ({_STEP}), 6) * scale, x)")
_AT_RANDOM = elementwise(f"copysign(minimum(floor({_SIZE} / ({_STEP}) + u) * ({_STEP}), 6) * scale, x)")


def nvfp4_emulated(x: Any, *, square: bool = False, stochastic: bool = False, seed: int = 0, offset: int = 0) -> Any:
    """(values, scale): x [m, n] as NVFP4 has it, e2m1 times e4m3 scales in bfloat16, exactly, and a 0-d scale.

    scale is the largest |x| / (6 · 448), float32; 16 neighbours of a row, or (square) 16 x 16, share an e4m3 scale,
    that of their largest |x| / 6 / scale; an element is the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 of them, ties to
    even, or (stochastic) one of the two beside it so that the mean is kept, by uniform numbers of seed and offset. m
    (square) and n are multiples of 16. There is no gradient. Emulated: nothing here is stored in four bits.
    """
    if x.dim() != 2 or x.shape[1] % _BLOCK or (square and x.shape[0] % _BLOCK):
        wanted = "both axes" if square else "the last axis"
        raise InvalidProblemError(f"x must be a matrix of multiples of 16 along {wanted}, got shape {tuple(x.shape)}")
    m, n = x.shape
    if not x.numel():
        return x.to(torch.bfloat16), torch.ones((), dtype=torch.float32, device=x.device)
    high = _BLOCK if square else 1
    apart = x.to(torch.float32).reshape(m // high, high, n // _BLOCK, _BLOCK)
    most = apart.abs().amax((1, 3), keepdim=True)
    scale = most.amax() / (_TOP * _TOP_SCALE)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    scales = (most / _TOP / scale).clamp(max=_TOP_SCALE).to(torch.float8_e4m3fn).to(torch.float32)
    inverse = torch.where(scales > 0, 1 / (scales * scale), torch.zeros_like(scales))
    given = {"x": apart, "inverse": inverse, "scale": scales}
    if stochastic:
        values = _AT_RANDOM(**given, u=bc.rand(apart.shape, seed=seed, offset=offset, like=apart))
    else:
        values = _NEAREST(**given)
    return values.reshape(m, n).to(torch.bfloat16), scale


def _product(a: tuple[Any, Any], b: tuple[Any, Any], dtype: Any) -> Any:
    """a @ bᵀ, summed in float32."""
    return (bc.matmul(a[0], b[0].T, out_element="float32") * (a[1] * b[1])).to(dtype)


class _Nvfp4(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, seed: int, offset: int, hadamard: bool, stochastic: bool) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.facts = seed, offset, hadamard, stochastic
        return _product(nvfp4_emulated(x), nvfp4_emulated(weight, square=True), x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight = ctx.saved_tensors
        seed, offset, hadamard, stochastic = ctx.facts
        dx = dw = None
        if ctx.needs_input_grad[0]:
            slopes = nvfp4_emulated(dy, stochastic=stochastic, seed=seed, offset=offset)
            values, scale = nvfp4_emulated(weight, square=True)
            dx = _product(slopes, (values.T, scale), x.dtype)
        if ctx.needs_input_grad[1]:
            left, right = dy.T.contiguous(), x.T.contiguous()
            if hadamard:
                signs = bc.rademacher(shape=(_BLOCK,), seed=seed, element="float32", like=dy)
                signs = signs.to(dy.dtype).repeat(dy.shape[0] // _BLOCK)
                left, right = (
                    bc.hadamard_transform(one, signs, block=_BLOCK, normalized=True) for one in (left, right)
                )
            slopes = nvfp4_emulated(left, stochastic=stochastic, seed=seed, offset=offset + dy.numel())
            dw = _product(slopes, nvfp4_emulated(right), weight.dtype)
        return dx, dw, None, None, None, None


class Nvfp4Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear trained as by NVIDIA's recipe (Pretraining LLMs with NVFP4, 2025), emulated for study.

    The numbers that are multiplied are those of NVFP4 (`nvfp4_emulated`), the products of bfloat16: it is slower than
    16 bits, and shows what the format does to a model. y = Q(x) Q(W)ᵀ, x in blocks of 16 neighbours and W of 16 x 16,
    both to nearest; dx = Q(dy) Q(W); dW = Q(H dyᵀ) Q(H xᵀ)ᵀ, H a Hadamard transform of 16 rows with random signs, the
    same at every step (random_hadamard); dy is rounded at random (stochastic_rounding) in both. in_features,
    out_features and rows are multiples of 16, x float16 or bfloat16 (or what autocast makes); the weight may be a
    float32 master. seed: of signs and of rounding, which draws another part of the stream at every step.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, random_hadamard: bool = True,
        stochastic_rounding: bool = True, seed: int = 0, **given: Any,
    ) -> None:  # fmt: skip
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value % _BLOCK:
                raise InvalidProblemError(f"{name} must be a multiple of 16, got {value}")
        super().__init__(in_features, out_features, bias, **given)
        self.random_hadamard, self.stochastic_rounding = bool(random_hadamard), bool(stochastic_rounding)
        self.seed, self.drawn = int(seed), 0

    def forward(self, input: Any) -> Any:
        """[…, in_features] to […, out_features], in the dtype of 16 bits that x, or autocast, has."""
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        if dtype not in (torch.float16, torch.bfloat16):
            raise UnsupportedError(f"x must be float16 or bfloat16, got {dtype}; cast it, or use autocast")
        x = input.to(dtype).reshape(-1, self.in_features)
        if x.shape[0] % _BLOCK:
            raise InvalidProblemError(f"x must have a multiple of 16 rows, got shape {tuple(input.shape)}")
        with torch.autocast(kind, enabled=False):
            facts = (self.seed, self.drawn, self.random_hadamard, self.stochastic_rounding)
            y = _Nvfp4.apply(x, self.weight.to(dtype), *facts)
            y = y if self.bias is None else y + self.bias.to(dtype)
        if torch.is_grad_enabled():
            self.drawn += 2 * x.shape[0] * self.out_features
        return y.reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return (
            f"{super().extra_repr()}, emulated, random_hadamard={self.random_hadamard}, "
            f"stochastic_rounding={self.stochastic_rounding}"
        )


__all__ = ["Nvfp4Linear", "nvfp4_emulated"]
