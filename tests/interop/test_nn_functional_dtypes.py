"""`baracuda_py.nn.functional` brings operands to one dtype as torch does, and computes in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import baracuda_py.nn.functional as NF
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import BaracudaError, UnsupportedError
from baracuda_py.nn.promotion import RULES, common_kind
from tests.interop.test_nn_functional_calls import compare

torch = pytest.importorskip("torch")
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
NUMBERS = (True, 2, 2.5, 1j)
OPERANDS = [torch.ones(shape, dtype=getattr(torch, name)) for name in DTYPES for shape in ((3, 2), ())]


@pytest.mark.parametrize("place", range(len(OPERANDS)))
def test_the_common_dtype_is_torchs(place: int) -> None:
    first = OPERANDS[place]
    for other in (*OPERANDS, *NUMBERS):
        wanted = torch.result_type(first, other)
        if wanted is not torch.complex32:  # which no function of this package has
            assert common_kind((first, other)) is common_kind((other, first)) is ElementKind.of(wanted), other


def test_three_operands_and_the_default_dtype() -> None:
    wide, zero = torch.ones(2, dtype=torch.int32), torch.ones((), dtype=torch.float64)
    assert common_kind((wide, zero, 2.5)) is ElementKind.F64 and common_kind((wide, 1, True)) is ElementKind.I32
    torch.set_default_dtype(torch.float64)
    try:
        assert NF.sin(wide).dtype == torch.sin(wide).dtype == torch.float64
        assert NF.add(wide, 2.5).dtype == NF.div(wide, 2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert NF.sin(np.arange(3)).dtype == NF.add(np.arange(3), 2.5).dtype == np.float32
    assert common_kind((object(), 1)) is None and common_kind(()) is None


HELD = {name: torch.tensor([[0, 1, 3], [2, 1, 1]]).to(getattr(torch, name)) for name in DTYPES[:10]}
ZERO = [torch.tensor(1, dtype=getattr(torch, name)) for name in ("bool", "int64", "float16", "float64")]
PLAIN = [x for name, x in HELD.items() if name not in ("int8", "int16", "bfloat16")]
ROUNDED = ("ldexp", "cosine_similarity")  # torch rounds between two steps of these


OF_ONE = sorted(name for name, (_, *own) in RULES.items() if own == ["x"])
OF_TWO = sorted(name for name, own in RULES.items() if own[-2:] in (("a", "b"), ("x1", "x2")))


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two(name: str) -> None:
    theirs = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    pairs = [*itertools.product(PLAIN, (*PLAIN, *ZERO, True, 2, 2.5)), *itertools.product((2, 2.5), PLAIN)]
    served = 0
    for a, b in pairs if name != "where" else ():
        try:
            wanted = theirs(a, b)
        except Exception:  # which torch does not take either
            continue
        if name in ("pow", "dist", "pairwise_distance") and not torch.result_type(a, b).is_floating_point:
            continue  # of bool, and of integers, whose differences wrap in torch
        compare(getattr(NF, name)(a, b), wanted, values=name not in ROUNDED)
        served += 1
    assert served or name in ("where", "dist")


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one(name: str) -> None:
    more = {"polygamma": (), "mvlgamma": (1,), "gradient": (), "logsumexp": (1,)}.get(name, ())
    for kind in (name_ for name_ in HELD if name_ != "bfloat16"):
        x = HELD[kind] + (3 if name in ("mvlgamma", "digamma", "polygamma") and kind != "bool" else 0)
        first = (1, x) if name == "polygamma" else (x, *more)
        try:
            wanted = getattr(torch, name, None) or getattr(torch.nn.functional, name)
            wanted = wanted(*first)
        except Exception:
            continue
        if kind == "bool" and name in ("mvlgamma", "polygamma", "digamma"):
            continue  # of 0
        compare(getattr(NF, name)(*first), wanted)


@pytest.mark.parametrize(
    "call", ["where(M, a, b)", "cat([a, b])", "stack([a, b])", "clamp(a, b)", "mse_loss(a, b)", "addcmul(a, b, b)"]
)
def test_functions_of_several(call: str) -> None:
    name = call.partition("(")[0]
    theirs = torch.nn.functional if hasattr(torch.nn.functional, name) else torch
    for a, b in itertools.product(PLAIN[1:], PLAIN[1:]):
        names = {"a": a, "b": b, "M": HELD["bool"]}
        try:
            wanted = eval(f"T.{call}", {**names, "T": theirs})
        except RuntimeError:
            continue
        compare(eval(f"T.{call}", {**names, "T": NF}), wanted)


def test_losses_of_halves_are_halves() -> None:
    x = torch.randn(3, 4).half()
    for name in ("mse_loss", "l1_loss", "kl_div", "soft_margin_loss", "binary_cross_entropy_with_logits"):
        made, wanted = (getattr(module, name)(x, x) for module in (NF, torch.nn.functional))
        assert made.dtype == wanted.dtype == torch.float16
    assert NF.cross_entropy(x, torch.tensor([0, 1, 2])).dtype == torch.float16
    assert NF.mse_loss(x, x, out=torch.empty((), dtype=torch.float32)).dtype == torch.float32


def test_what_torch_refuses_is_refused() -> None:
    whole = torch.arange(6).reshape(2, 3)
    for call in (
        lambda m: m.mean(whole), lambda m: m.std(whole), lambda m: m.quantile(whole, 0.5),
        lambda m: m.lerp(torch.ones(2), torch.ones(2).double(), 0.5),
        lambda m: m.matmul(torch.ones(2, 2), torch.ones(2, 2).double()),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call(torch)
        with pytest.raises(BaracudaError):
            call(NF)
    with pytest.raises(UnsupportedError, match=r"write cast\(x, 'float32'\)"):
        NF.mean(whole)


def test_numpys_numbers_are_plain() -> None:
    x = torch.arange(3)
    assert NF.add(x, np.int64(2)).dtype == torch.int64 and NF.add(x, np.float64(2)).dtype == torch.float32
    assert NF.add(x > 0, np.bool_(True)).dtype == torch.bool
    assert NF.max(torch.ones(2, 3), np.int64(1)).values.shape == (2,)
    assert NF.sum(torch.ones(2, 3), dim=(np.int64(0), np.int32(1)), keepdim=np.bool_(True)).shape == (1, 1)
