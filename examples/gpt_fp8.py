"""Layers of `train_gpt.py` in fp8: their products and both gradients are of e4m3 codes, with a scale for each row.

Working copies are bfloat16, master weights float32, as without it; the head and the embedding stay in bfloat16, and so
do the products of a few rows, which generation makes.
"""

from __future__ import annotations

from typing import Any

from gpt_model import Decoder, Weights

import baracuda_py as bc

FEW = 16  # rows of a product below which codes cost more than they save


class Fp8Layers(Decoder):
    """A decoder with such layers."""

    def linear(self, x: Any, name: str) -> Any:
        """x @ W of a layer."""
        if name == "head" or x.shape[0] < FEW:
            return super().linear(x, name)
        return bc.fp8_linear(x, self.weights[name].T, recipe="rows")

    def layer_gradients(self, name: str, x: Any, dy: Any, grads: Weights) -> Any:
        """The gradient of what a layer multiplies; that of its matrix, in float32, goes to `grads`."""
        grads[name] = bc.cast(bc.fp8_linear(x.T, dy.T, recipe="rows"), "float32")
        return bc.fp8_linear(dy, self.weights[name], recipe="rows")


def in_fp8(decoder: type[Decoder]) -> type[Decoder]:
    """The decoder of an optimizer, with layers in fp8."""
    return type(f"Fp8{decoder.__name__}", (Fp8Layers, decoder), {})
