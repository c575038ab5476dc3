"""`baracuda_py.nn.functional` takes torch's calls as they stand: a call a line of `nn_functional_calls.txt`.

Each is made of both, and compared in values, shapes and dtypes; of one that draws, marked "~", all but the values.
"torch.softmax(…)" is torch's own function where `torch.nn.functional` has another one of the name.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py.nn.functional as NF

torch = pytest.importorskip("torch")
CALLS = [
    line
    for line in Path(__file__).with_name("nn_functional_calls.txt").read_text().splitlines()
    if not line.startswith("#")
]
FIELDS = ("values", "indices", "min", "max", "mantissa", "exponent", "hist", "bin_edges")
RELATIVE = {"torch.float64": 1e-9, "torch.float32": 1e-5, "torch.complex64": 1e-5}
ABSOLUTE = {"torch.float64": 1e-10, "torch.float32": 1e-6, "torch.complex64": 1e-6}


def x(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape))


def names() -> dict[str, Any]:
    """What the calls are written with, made anew for each: an operand that one writes to is another's no more."""
    X, Y, P = x(3, 4), x(3, 5)[:, :4], x(3, 4).abs() + 0.1
    I = torch.tensor([[1, -2, 3, 3], [0, 2, 2, -1], [1, -2, 3, 3]])  # noqa: E741
    N = X.clone()
    N[0, 1] = N[2, 2] = float("nan")
    return {
        "torch": torch, "np": np, "x": x, "X": X, "Y": Y, "P": P, "N": N, "F32": X.float(), "H": X.half(),
        "BF": X.bfloat16(), "HW": X[0].half(), "C": torch.complex(X, Y).to(torch.complex64), "B": X > 0, "I": I,
        "I32": I.int(), "I8": I.to(torch.int8), "U8": I.abs().to(torch.uint8), "E": torch.empty(0, 3).double(),
        "Z": torch.tensor(1.5).double(), "ZI": torch.tensor(3), "BZ": torch.tensor(True),
        "IX": torch.tensor([[0, 2], [1, 0], [2, 1]]), "K": torch.tensor([0, 3, 1]), "S": x(4).sort().values,
        "LP": x(5, 2, 4).log_softmax(-1), "CT": torch.tensor([[1, 2], [3, 0]]),
    }  # fmt: skip


def flat(value: Any) -> list[Any]:
    return [one for each in value for one in flat(each)] if isinstance(value, (tuple, list)) else [value]


def both(call: str) -> tuple[Any, Any]:
    """The results of ours and of torch's."""
    call, of_torch = call.removeprefix("torch."), call.startswith("torch.")
    functional = torch.nn.functional
    theirs = functional if hasattr(functional, call.partition("(")[0]) and not of_torch else torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"M.{call}", {**names(), "M": NF}), eval(f"M.{call}", {**names(), "M": theirs})


def compare(ours: Any, theirs: Any, values: bool = True) -> None:
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        a = torch.from_numpy(a) if isinstance(a, np.ndarray) else a  # made of no operand
        assert a.shape == b.shape and a.dtype == b.dtype
        if values:
            exact = not (b.dtype.is_floating_point or b.dtype.is_complex)
            within = [0 if exact else table.get(str(b.dtype), 4e-3) for table in (RELATIVE, ABSOLUTE)]
            torch.testing.assert_close(a, b, rtol=within[0], atol=within[1], equal_nan=True)
    for field in (f for f in FIELDS if not torch.is_tensor(theirs) and hasattr(theirs, f)):
        compare(getattr(ours, field), getattr(theirs, field), values)


@pytest.mark.parametrize("call", CALLS)
def test_calls_as_they_stand(call: str) -> None:
    compare(*both(call.removeprefix("~")), values=not call.startswith("~"))
