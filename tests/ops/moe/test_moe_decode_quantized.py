"""Experts of few tokens by stored weights: against a loop in float64, the bits of many tokens, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast, decode
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.testing.places import call

KINDS = ("mxfp4", "uint4", "fp8_e4m3", "q4_0", "q8_0", "q5_1")


def stored(rng: Any, kind: str, experts: int, n: int, k: int) -> tuple[tuple[Any, ...], Any]:
    """Codes, scales and zeros of random weights, and what they decode to."""
    options: dict[str, Any] = {"kind": kind} | ({"group": 64} if kind in ("uint4", "fp8_e4m3") else {})
    parts = bc.block_quantize(rng.standard_normal((experts, n, k), dtype=np.float32) / 8, **options)
    parts = parts if isinstance(parts, tuple) else (parts,)
    made = bc.block_dequantize(*parts, **options, element="float32")
    return (*parts, *(None,) * (3 - len(parts))), np.asarray(made, np.float64)


def loop(x: Any, indices: Any, weights: Any, first: Any, second: Any, biases: Any, order: str) -> Any:
    """SwiGLU experts, a token's choice at a time."""
    y = np.zeros((x.shape[0], second.shape[1]))
    half = first.shape[1] // 2
    for t, chosen in enumerate(indices):
        for j, e in enumerate(chosen):
            if not 0 <= e < first.shape[0]:
                continue
            h = first[e] @ x[t].astype(np.float64) + biases[0][e]
            gate, up = {"gate_first": (h[:half], h[half:]), "gate_last": (h[half:], h[:half])}.get(
                order, (h[::2], h[1::2])
            )
            y[t] += weights[t, j] * (second[e] @ (gate / (1 + np.exp(-gate)) * up) + biases[1][e])
    return y


@pytest.mark.parametrize("seed", range(10))
def test_against_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, order = KINDS[seed % len(KINDS)], ("gate_first", "gate_last", "interleaved")[seed % 3]
    tokens, k, experts = int(rng.integers(1, 17)), int(rng.integers(1, 5)), int(rng.integers(1, 6))
    d, f, d_out = 256, 256, int(rng.integers(1, 40))
    (first, scales, zeros), w1 = stored(rng, kind, experts, 2 * f, d)
    (second, scales2, zeros2), w2 = stored(rng, kind, experts, d_out, f)
    biases = rng.standard_normal((experts, 2 * f), np.float32), rng.standard_normal((experts, d_out), np.float32)
    x = rng.standard_normal((d, tokens), np.float32).T if seed % 2 else rng.standard_normal((tokens, d), np.float32)
    indices = rng.integers(-2, experts + 2, (tokens, 2 * k))[:, ::2].astype(np.int32 if seed % 2 else np.int64)
    weights = rng.standard_normal((k, tokens), np.float32).T
    given = (x, indices, weights, first, second, scales, scales2, zeros, zeros2, *biases)
    wanted = loop(x, indices, weights, w1, w2, biases, order)
    for function in (bc.moe_decode_quantized, bc.moe_quantized):
        y = function(*given, kind=kind, order=order)
        np.testing.assert_allclose(y, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max(initial=1))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("kind", "activation"), [("mxfp4", "swiglu_oai"), ("uint4", "swiglu"), ("q4_0", "silu")])
def test_a_choice_has_the_bits_of_grouped_products_in_any_company(kind: str, activation: str) -> None:
    """The product of groups and the unit after it, and the same choice alone."""
    rng = np.random.default_rng(3)
    (codes, scales, _), _ = stored(rng, kind, 3, 72, 192)
    scales = None if scales is None else np.asarray(scales)
    group = {"group": 64} if kind == "uint4" else {}
    x = cast(rng.standard_normal((5, 192), np.float32), ElementKind.BF16)
    chosen = rng.integers(0, 3, (5, 2))
    chosen[0] = -1, 3
    bias = cast(rng.standard_normal((3, 72), np.float32), ElementKind.BF16)
    facts = {"kind": kind, "n": 72, "k": 192, "experts": 3, "element": "bfloat16", **group}
    if scales is not None and scales.dtype == np.float32:
        facts["scale_element"] = "float32"
    parts = {"codes": codes} | ({} if scales is None else {"scales": scales})

    def products(rows: Any, indices: Any) -> Any:
        desc = bc.ChosenBlockGemmDescriptor(
            **facts, tokens=len(rows), choices=indices.shape[1], sources=len(rows), activation=activation,
            order="interleaved",
        )  # fmt: skip
        return call(bc.ChosenBlockGemmPlan, desc, ("y",), "emulator", x=rows, indices=indices, bias=bias, **parts)["y"]

    whole = products(x, chosen).reshape(5, 2, -1)
    assert not np.asarray(decode(whole[0], ElementKind.BF16)).any()
    np.testing.assert_array_equal(products(x[3:4], chosen[3:4]).reshape(2, -1), whole[3])
    slots = np.argsort(chosen.ravel(), kind="stable")
    slots = slots[(chosen.ravel()[slots] >= 0) & (chosen.ravel()[slots] < 3)]
    ends = np.searchsorted(chosen.ravel()[slots], np.arange(3), side="right").astype(np.int64)
    desc = bc.GroupedBlockGemmDescriptor(**facts, total=len(slots))
    h = call(bc.GroupedBlockGemmPlan, desc, ("y",), "emulator", x=x[slots // 2], offsets=ends, bias=bias, **parts)["y"]
    if activation == "silu":
        of = bc.UnaryDescriptor(kind="silu", shape=h.shape, element="bfloat16")
        y = call(bc.UnaryPlan, of, ("y",), "emulator", x=h)["y"]
    else:
        of = bc.GatedActivationDescriptor(kind=activation, shape=(len(slots), 36), element="bfloat16")
        y = call(bc.GatedActivationPlan, of, ("y",), "emulator", gate=h[:, ::2].copy(), up=h[:, 1::2].copy())["y"]
    np.testing.assert_array_equal(whole.reshape(10, -1)[slots].view(np.uint16), y.view(np.uint16))


def test_what_is_refused() -> None:
    rng = np.random.default_rng(0)
    (codes, scales, _), _ = stored(rng, "mxfp4", 2, 6, 64)
    x, indices = np.ones((4, 64), np.float32), np.zeros((4, 2), np.int64)
    for given, more, said in (
        ((codes, x, indices, scales), {"activation": "mish"}, "activation"),
        ((codes[:, :5], x, indices, scales[:, :5]), {"activation": "swiglu"}, "n must be even"),
        ((codes, x[:3], indices, scales), {}, "x must have a row for each"),
        ((codes, x, np.zeros((4, 65), np.int64), scales), {}, "use moe_quantized"),
        ((codes, x, indices.astype(np.float32), scales), {}, "indices"),
        ((codes, x, indices, scales), {"summed": True}, "weights are given"),
        ((codes, x, indices, scales), {"bias": np.ones((2, 5), np.float32)}, "bias"),
    ):
        with pytest.raises((BaracudaError, InvalidProblemError), match=said):
            bc.chosen_block_gemm(*given, kind="mxfp4", **more)
