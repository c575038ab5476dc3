"""Linear layers that train in fp8, and models of which the large ones become such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...ops.quant_gemm.fp8_linear import RECIPES, _checked, codes_of, linear_of_codes
from ..untyped import torch


class Fp8Linear(torch.nn.Linear):  # type: ignore[misc]
    """torch.nn.Linear whose products, forward and backward, are of fp8: `bc.fp8_linear`.

    The weight stays as it is, in 16 bits or, as a master copy, float32: then it is cast to x's dtype on the way.
    recipe: "tensor", "rows" or "blocks". A product for which `fp8_pays` says no is the one of 16 bits; always=True
    asks for fp8 whatever its size. state_dict is torch.nn.Linear's.

    keep_codes: x and the weight are quantised once, in the forward, together with their transposes; until the backward
    those are kept, a byte a number, in the place of x and besides the weight. False: 16-bit x is kept, and the backward
    quantises both again, with the same bits.
    """

    keep_codes = True

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, recipe: str = "tensor", always: bool = False,
        keep_codes: bool = True, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, **given)
        self.recipe, self.always, self.keep_codes = _recipe(recipe), bool(always), bool(keep_codes)

    def forward(self, input: Any) -> Any:
        """[…, in_features] to […, out_features], in the dtype of 16 bits that x, or autocast, has."""
        dtype = torch.get_autocast_dtype(input.device.type) if _autocasting(input) else input.dtype
        x, weight = input.to(dtype), self.weight.to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        rows = x.numel() // max(self.in_features, 1)
        if not self.always and not fp8_pays(rows, self.out_features, self.in_features, self.recipe, self.keep_codes):
            return bct.linear(x, weight, bias)
        if not _autocasting(input):
            return self._product(x, weight, bias)
        with torch.autocast(input.device.type, enabled=False):
            return self._product(x, weight, bias)

    def _product(self, x: Any, weight: Any, bias: Any) -> Any:
        keeps = self.keep_codes and torch.is_grad_enabled() and weight.requires_grad and x.numel()
        if not keeps or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return bct.fp8_linear(x, weight, bias, recipe=self.recipe)
        _checked(x, weight, self.recipe)
        with torch.no_grad():
            codes = codes_of(x.reshape(-1, self.in_features), weight, recipe=self.recipe)
        return linear_of_codes(x, weight, bias, **codes, recipe=self.recipe)

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        return f"{super().extra_repr()}, recipe={self.recipe!r}" + (", always=True" if self.always else "")


def _autocasting(x: Any) -> bool:
    return bool(torch.is_autocast_enabled(x.device.type))


def _recipe(recipe: Any) -> str:
    if recipe not in RECIPES:
        raise InvalidProblemError(f"recipe must be one of {', '.join(map(repr, RECIPES))}, got {shown(recipe)}")
    return str(recipe)


_MODEL = {"tensor": (10, 6, 6, 1250e12), "rows": (8, 6, 6, 1250e12), "blocks": (6, 4, 4, 880e12)}
"""Of a recipe: bytes that casts move for a number of x and of the weight, quantised twice or once, and of dy, and
operations of fp8 a second."""


def fp8_pays(rows: int, out_features: int, in_features: int, recipe: str = "tensor", keep_codes: bool = True) -> bool:
    """Whether three products of fp8 with their casts are expected to take less time than those of 16 bits.

    A model, of rates that an H200 reaches: products of 16 bits at 757 TFLOP/s, those of fp8 at 1250, of blocks with
    scales at 880; casts, which move 4 to 10 bytes a number, at 3 TB/s; 15 launches of 3 us. A twentieth must be gained,
    and the work must outlast the calls on the host, which take up to 0.5 ms.
    """
    twice, once, slope, rate = _MODEL[_recipe(recipe)]
    moved = (once if keep_codes else twice) * (rows + out_features) * in_features + slope * rows * out_features
    flops = 6 * rows * in_features * out_features
    spent = flops / rate + moved / 3e12 + 45e-6
    return spent > 5e-4 and 1.05 * spent < flops / 757e12


def convert_to_fp8(
    model: Any, *, recipe: str = "tensor", always: bool = False, only: Callable[[str, Any], bool] | None = None,
    keep_codes: bool = True,
) -> Any:  # fmt: skip
    """The model, whose torch.nn.Linear of multiples of 16 are `Fp8Linear` from now on; parameters stay as they are.

    only(name, module): which ones; by default all but a layer named lm_head or output, as recipes leave the head in 16
    bits. Subclasses of Linear stay. keep_codes: as of `Fp8Linear`.
    """
    _recipe(recipe)
    chosen = only if only is not None else lambda name, module: name.rpartition(".")[2] not in ("lm_head", "output")
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or not chosen(name, module):
            continue
        if module.in_features % 16 or module.out_features % 16:
            continue
        module.__class__ = Fp8Linear
        module.recipe, module.always, module.keep_codes = recipe, bool(always), bool(keep_codes)
    return model
