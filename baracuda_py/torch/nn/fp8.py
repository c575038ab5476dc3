"""Linear layers that train in fp8, and models of which the large ones become such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...ops.quant_gemm.fp8_linear import RECIPES
from ..untyped import torch


class Fp8Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear whose products, forward and backward, are of fp8: `bc.fp8_linear`.

    The weight stays as it is, in 16 bits or, as a master copy, float32: then it is cast to x's dtype on the way.
    recipe: "tensor", "rows" or "blocks". A product for which `fp8_pays` says no is the one of 16 bits; always=True
    asks for fp8 whatever its size. state_dict is torch.nn.Linear's.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, recipe: str = "tensor", always: bool = False,
        **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, **given)
        self.recipe, self.always = _recipe(recipe), bool(always)

    def forward(self, input: Any) -> Any:
        """[…, in_features] to […, out_features], in the dtype of 16 bits that x, or autocast, has."""
        dtype = torch.get_autocast_dtype(input.device.type) if _autocasting(input) else input.dtype
        x, weight = input.to(dtype), self.weight.to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        rows = x.numel() // max(self.in_features, 1)
        if not self.always and not fp8_pays(rows, self.out_features, self.in_features):
            return bct.linear(x, weight, bias)
        with torch.autocast(input.device.type, enabled=False):
            return bct.fp8_linear(x, weight, bias, recipe=self.recipe)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{super().extra_repr()}, recipe={self.recipe!r}" + (", always=True" if self.always else "")


def _autocasting(x: Any) -> bool:
    return bool(torch.is_autocast_enabled(x.device.type))


def _recipe(recipe: Any) -> str:
    if recipe not in RECIPES:
        raise InvalidProblemError(f"recipe must be one of {', '.join(map(repr, RECIPES))}, got {shown(recipe)}")
    return str(recipe)


def fp8_pays(rows: int, out_features: int, in_features: int) -> bool:
    """Whether three products of fp8 with their casts are expected to take less time than those of 16 bits.

    A model, of rates that an H100 reaches: products at 1000 TFLOP/s in place of 650; for each of them both operands
    are read twice and written once at 2.5 TB/s, and six launches more, of 2 us.
    """
    sizes = rows * in_features + out_features * in_features + rows * out_features
    saved = 6 * rows * in_features * out_features * (1 / 650e12 - 1 / 1000e12)
    return saved > 2 * 5 * sizes / 2.5e12 + 6 * 2e-6


def convert_to_fp8(
    model: Any, *, recipe: str = "tensor", always: bool = False, only: Callable[[str, Any], bool] | None = None
) -> Any:
    """The model, whose torch.nn.Linear of multiples of 16 are `Fp8Linear` from now on; parameters stay as they are.

    only(name, module): which ones; by default all but a layer named lm_head or output, as recipes leave the head in 16
    bits. Subclasses of Linear stay.
    """
    _recipe(recipe)
    chosen = only if only is not None else lambda name, module: name.rpartition(".")[2] not in ("lm_head", "output")
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or not chosen(name, module):
            continue
        if module.in_features % 16 or module.out_features % 16:
            continue
        module.__class__ = Fp8Linear
        module.recipe, module.always = recipe, bool(always)
    return model
