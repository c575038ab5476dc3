"""Learned scales of stored matrices: sums over groups in float64 from codes read one by one; kernels run emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.quantize.codebook_formats import FP4_VALUES, NF4_VALUES
from call_emulated import call

CASES = [  # kind, batch, n, k, group, row_group, zeros, index, element, element of scales
    ("int8", 1, 3, 40, 40, 1, None, False, "float32", "float32"),
    ("int4", 2, 5, 96, 32, 2, None, False, "float16", "float16"),
    ("uint4", 1, 4, 96, 24, 1, "uint8", False, "bfloat16", "bfloat16"),
    ("uint4", 2, 3, 64, 16, 1, "float16", True, "float32", "float32"),
    ("uint3", 1, 3, 96, 32, 1, "float32", True, "float64", "float32"),
    ("uint2", 1, 37, 64, 64, 37, "uint8", False, "float64", "float16"),
    ("nf4", 1, 2, 640, 320, 1, None, False, "float32", "float32"),
    ("fp4", 1, 7, 64, 8, 3, None, False, "float32", "float32"),
    ("uint8", 1, 2, 24, 24, 1, None, False, "float64", "float32"),
]


def code(row: Any, bits: int, at: int, upper_first: bool) -> int:
    """Code `at` of a row of bytes, by whole-number arithmetic."""
    if upper_first:
        at ^= 1
    return int.from_bytes(row.tobytes(), "little") >> (bits * at) & ((1 << bits) - 1)


def number(kind: str, row: Any, at: int) -> float:
    if kind in ("nf4", "fp4"):
        return float((NF4_VALUES if kind == "nf4" else FP4_VALUES)[code(row, 4, at, True)])
    bits = int(kind[-1])
    whole = code(row, bits, at, False)
    return whole - (1 << bits) if kind.startswith("int") and whole >> (bits - 1) else whole


def problem(case: Any, inner: int) -> tuple[Any, dict[str, Any], Any, Any]:
    """The descriptor, the operands, the float64 gradient and the sum of sizes that it is made of."""
    kind, batch, n, k, group, row_group, zero, by_index, element, held = case
    desc = bc.BlockDequantizeBackwardDescriptor(
        kind=kind, batch_shape=(batch,), n=n, k=k, group=group, row_group=row_group, element=element,
        scale_element=held, zero_element=zero or "uint8" if kind.startswith("uint") else None,
    )  # fmt: skip
    rng, kinds = np.random.default_rng(k + n), ElementKind.of
    given: dict[str, Any] = {
        "codes": rng.integers(0, 256, desc.codes_shape, dtype=np.uint8),
        "scales": np.ones(desc.scales_shape, kinds(held).dtype),
        "zeros": rng.integers(0, 9, desc.scales_shape).astype(kinds(zero).dtype) if zero else None,
        "index": rng.integers(-1, k // group + 1, k, dtype=np.int32) if by_index else None,
        "dy": rng.standard_normal((batch, n, inner * k)).astype(kinds(element).dtype)[..., ::inner],
    }
    want, size = np.zeros(desc.scales_shape), np.zeros(desc.scales_shape)
    for b, row, column in np.ndindex(batch, n, k):
        of = column // group if not by_index else min(max(int(given["index"][column]), 0), k // group - 1)
        at = b, row // row_group, of
        offset = 0 if given["zeros"] is None else float(given["zeros"][at])
        term = 0.75 * float(given["dy"][b, row, column]) * (number(kind, given["codes"][b, row], column) - offset)
        want[at], size[at] = want[at] + term, size[at] + abs(term)
    return desc, given, want, size


def right(got: Any, want: Any, size: Any, element: str, held: str) -> bool:
    sums = 2.0**-24 if element != "float64" else 2.0**-52
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[held]
    return bool((np.abs(got.astype(np.float64) - want) <= 64 * sums * size + rounding * np.abs(want) * 1.01).all())


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("inner", [1, 3])
def test_the_gradient_is_the_sum_over_a_group(case: Any, inner: int) -> None:
    """Groups of some lanes, of a warp and more; rows and columns that share a scale; dy with gaps."""
    desc, given, want, size = problem(case, inner)
    got = np.full(desc.scales_shape, np.nan, given["scales"].dtype)
    call(bc.BlockDequantizeBackwardPlan, desc, {"dscales": got}, scale=0.75, **given)
    assert right(got, want, size, case[-2], case[-1])
    known = {name: case[at] for name, at in (("kind", 0), ("group", 4), ("row_group", 5))}
    own = bc.block_dequantize_backward(**{n: a for n, a in given.items() if a is not None}, scale=0.75, **known)
    assert right(own, want, size, case[-2], case[-1])


def test_a_row_alone_has_the_same_bits() -> None:
    case = ("int4", 1, 5, 96, 32, 1, None, False, "float32", "float32")
    desc, given, _, _ = problem(case, 1)
    whole = np.empty(desc.scales_shape, np.float32)
    call(bc.BlockDequantizeBackwardPlan, desc, {"dscales": whole}, scale=1.0, **given)
    alone, one = np.empty((1, 1, 3), np.float32), problem(("int4", 1, 1, *case[3:]), 1)[0]
    given = {name: a if a is None else np.ascontiguousarray(a[:, 3:4]) for name, a in given.items()}
    call(bc.BlockDequantizeBackwardPlan, one, {"dscales": alone}, scale=1.0, **given)
    assert np.array_equal(alone[0, 0], whole[0, 3])


def test_torch_learns_scales() -> None:
    """Through a linear layer, and of a cotangent that is one number broadcast; zero points have no gradient."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    w, x = torch.randn(6, 64), torch.randn(5, 64)
    codes, scales, zeros = bc.block_quantize(w, kind="uint4", group=16)
    numbers = torch.stack((codes & 15, codes >> 4), -1).reshape(6, 64).float()
    for end in (lambda m: (x @ m.T).square().sum(), lambda m: m.sum()):
        own, want = (scales.clone().requires_grad_() for _ in range(2))
        end(bc.block_dequantize(codes, own, zeros, kind="uint4", element="float32")).backward()
        end((numbers - zeros.repeat_interleave(16, 1)) * want.repeat_interleave(16, 1)).backward()
        assert own.grad is not None
        torch.testing.assert_close(own.grad, want.grad, rtol=1e-5, atol=1e-4)
    with pytest.raises(bc.UnsupportedError, match="zeros: it requires grad"):
        bc.block_dequantize(codes, scales, zeros.float().requires_grad_(), kind="uint4", element="float32")


@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4", "q4_0"])
def test_formats_whose_scales_are_not_any_float_are_refused(kind: str) -> None:
    with pytest.raises(bc.BaracudaError, match="kind must be one of"):
        bc.BlockDequantizeBackwardDescriptor(kind=kind, n=1, k=32, element="float32")
