"""The decoder with its layers' matrices in formats of few bits: what each scheme stores, and what multiplies by it.

Embedding, head and norms stay as they are. Formats, quantisers and products are baracuda_py calls; only GPTQ's choice
of codes is NumPy's (gptq.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpt_model import Decoder, product
from gptq import gptq, output_error

import baracuda_py as bc


@dataclass(frozen=True)
class Stored:
    """W [out, in] in a format of `bc.FormatKind`; of x [tokens, in] it makes x Wᵀ.

    dynamic: x is quantised to int8 too, a scale for each of its rows, and the products are of integers.
    """

    kind: str
    codes: Any
    scales: Any
    dynamic: bool = False

    def __call__(self, x: Any) -> Any:
        if self.dynamic:
            return bc.quantized_linear(x, self.codes.view(np.int8), self.scales.reshape(-1))
        return bc.quantized_matmul(x, self.codes, self.scales, kind=self.kind)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.scales.nbytes)

    def values(self) -> np.ndarray:
        """The numbers that the codes mean, float32 [out, in] on the host."""
        return on_host(bc.block_dequantize(self.codes, self.scales, kind=self.kind, element="float32"))


@dataclass(frozen=True)
class Scheme:
    """A row of the table. grouped: groups of a row have float16 scales of their own, else a row has one in float32."""

    name: str
    kind: str
    grouped: bool = False
    dynamic: bool = False
    calibrated: bool = False

    def nearest(self, weight: Any, group: int) -> Stored:
        """W [out, in], each number rounded to the nearest that the format has."""
        where: dict[str, Any] = {"group": group, "scale_element": "float16"} if self.grouped else {}
        codes, scales = bc.block_quantize(weight, kind=self.kind, **where)
        return Stored(self.kind, codes, scales, self.dynamic)

    def layers(self, model: Decoder, group: int) -> dict[str, Stored]:
        """Every layer's matrix, rounded to nearest."""
        return {name: self.nearest(turned(model, name), group) for name in layer_names(model)}


INT4 = Scheme("int4 nearest", "int4", grouped=True)
SCHEMES = (
    Scheme("int8 W8A8", "int8", dynamic=True),
    Scheme("int8 W8A16", "int8"),
    Scheme("fp8 e4m3", "fp8_e4m3"),
    INT4,
    Scheme("int4 GPTQ", "int4", grouped=True, calibrated=True),
    Scheme("nf4", "nf4", grouped=True),
)


def layer_names(model: Decoder) -> list[str]:
    """The matrices of the layers, in the order in which a pass meets them."""
    return [f"{part}{i}" for i in range(model.preset.layers) for part in ("qkv", "out", "up", "down")]


def turned(model: Decoder, name: str) -> Any:
    """A matrix [out, in], contiguous, in the float32 that training keeps."""
    return bc.contiguous(model.matrices[name].T)


def on_host(x: Any) -> np.ndarray:
    """As a NumPy array."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def calibrated(
    model: Decoder, tokens: Any, group: int, done: Callable[[], Any]
) -> tuple[dict[str, Stored], dict[str, tuple[float, float]]]:
    """Every layer's matrix in int4 by GPTQ, and the errors of its outputs: (of GPTQ, of rounding to nearest).

    One forward pass over the calibration tokens [windows, context] does it: a layer is quantised when its input comes,
    and the pass goes on with what it makes then, so that the layers behind it are calibrated on the inputs that they
    will get. done: called after each.
    """
    stored: dict[str, Stored] = {}
    errors: dict[str, tuple[float, float]] = {}

    def first_met(name: str) -> Callable[[Any], Any]:
        def layer(x: Any) -> Any:
            hessian = on_host(product(x.T, x)).astype(np.float64)
            matrix = turned(model, name)
            weight = on_host(matrix)
            codes, scales = gptq(weight, hessian, group)
            packed = bc.pack_codes(model.xp.asarray(codes.view(np.uint8)), 4)
            made = stored[name] = Stored("int4", packed, model.xp.asarray(scales))
            nearest = INT4.nearest(matrix, group)
            errors[name] = (
                output_error(weight, made.values(), hessian), output_error(weight, nearest.values(), hessian),
            )  # fmt: skip
            done()
            return made(x)

        return layer

    model.with_stored({name: first_met(name) for name in layer_names(model)}).forward(tokens)
    return stored, errors
