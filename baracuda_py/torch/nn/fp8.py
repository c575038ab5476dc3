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
        if not self.always and not fp8_pays(rows, self.out_features, self.in_features, self.recipe):
            return bct.linear(x, weight, bias)
        if not _autocasting(input):
            return bct.fp8_linear(x, weight, bias, recipe=self.recipe)
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


_MODEL = {"tensor": (10, 6, 1250e12), "rows": (8, 6, 1250e12), "blocks": (6, 4, 880e12)}
"""Of a recipe: bytes that casts move for a number of x and of the weight, and of dy, and operations of fp8 a second."""


def fp8_pays(rows: int, out_features: int, in_features: int, recipe: str = "tensor") -> bool:
    """Whether three products of fp8 with their casts are expected to take less time than those of 16 bits.

    A model, of rates that an H200 reaches: products of 16 bits at 757 TFLOP/s, those of fp8 at 1250, of blocks with
    scales at 880; casts, which move 4 to 10 bytes a number, at 3 TB/s; 15 launches of 3 us. A twentieth must be gained,
    and the work must outlast the calls on the host, which take up to 0.5 ms.
    """
    operands, slope, rate = _MODEL[_recipe(recipe)]
    moved = operands * (rows + out_features) * in_features + slope * rows * out_features
    flops = 6 * rows * in_features * out_features
    spent = flops / rate + moved / 3e12 + 45e-6
    return spent > 5e-4 and 1.05 * spent < flops / 757e12


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
