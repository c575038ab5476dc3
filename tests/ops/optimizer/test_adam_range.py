"""adam_step over gradients of every exponent, eps 0 included: torch's update, on every backend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.ops.optimizer.adam_step import AdamStepDescriptor, AdamStepPlan
from baracuda_py.testing.places import call

torch = pytest.importorskip("torch")

ELEMENTS = ("float16", "bfloat16", "float32", "float64")
BETA1, BETA2, LR = 0.9, 0.999, 1e-2


def _gradients(kind: ElementKind) -> np.ndarray:
    """Powers of two over the element's range, times 1 and -1.375, and zeros."""
    low, high = kind.limits.min_exponent - kind.limits.digits, int(np.frexp(float(kind.limits.max))[1]) - 1
    powers = np.ldexp(np.float64(1), np.arange(low, high + 1))
    return np.concatenate([powers, -1.375 * powers, [0.0, -0.0]]).astype(kind.dtype)


def _torch(p: np.ndarray, g: np.ndarray, steps: int, eps: float, mode: str, decay: float, acc: Any) -> tuple[Any, ...]:
    """torch's single-tensor optimiser on the accumulator's dtype; it rounds as our moments do."""
    param = torch.from_numpy(p.astype(acc))
    param.requires_grad_()
    made = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[mode]
    optimiser = made([param], lr=LR, betas=(BETA1, BETA2), eps=eps, weight_decay=decay, foreach=False, fused=False)
    for _ in range(steps):
        param.grad = torch.from_numpy(g.astype(acc))
        optimiser.step()
    state = optimiser.state[param]
    return tuple(t.detach().numpy() for t in (param, state["exp_avg"], state["exp_avg_sq"]))


@pytest.mark.parametrize(("mode", "decay"), [("adamw", 0.0), ("adamw", 0.1), ("adam", 0.0)])
@pytest.mark.parametrize("eps", [0.0, 1e-60, 1e-8])
@pytest.mark.parametrize(("name", "steps"), [*((e, 1) for e in ELEMENTS), ("float32", 3), ("float64", 3)])
def test_the_update_is_torch_s_at_every_exponent(
    place: str, name: str, steps: int, eps: float, mode: str, decay: float
) -> None:
    kind = ElementKind.of(name)
    acc = kind.acc.dtype
    g = _gradients(kind)
    start = np.linspace(-2, 2, g.size).astype(kind.dtype)
    p, m, v = start, np.zeros(g.size, acc), np.zeros(g.size, acc)
    desc = AdamStepDescriptor(
        shapes=(g.shape,), mode=mode, beta1=BETA1, beta2=BETA2, eps=eps, weight_decay=decay, element=kind
    )
    for step in range(1, steps + 1):
        got = call(AdamStepPlan, desc, (), place, params=[p], grads=[g], exp_avg=[m], exp_avg_sq=[v], lr=LR, step=step)
        p, m, v = (got[n][0] for n in ("params", "exp_avg", "exp_avg_sq"))
    wanted_p, wanted_m, wanted_v = _torch(start, g, steps, eps, mode, decay, acc)

    # Moments in the subnormals have few digits, and are rounded more than once: one of their steps, or two.
    limits, rel = np.finfo(acc), 1e-6 if acc == np.float32 else 1e-14
    atol = 3 * float(limits.smallest_subnormal)
    np.testing.assert_allclose(m, wanted_m, rtol=rel, atol=atol)
    np.testing.assert_allclose(v, wanted_v, rtol=rel, atol=atol)
    sure = np.ones(g.size, bool)
    for moment, wanted, least in ((m, wanted_m, limits.tiny), (v, wanted_v, limits.tiny / limits.eps)):
        sure &= ~((wanted != 0) & (np.abs(wanted) < least)) & ((wanted == 0) == (moment == 0))
    assert np.count_nonzero(sure) > 0.5 * g.size
    got_p, expected = p.astype(np.float64)[sure], wanted_p.astype(np.float64)[sure]
    np.testing.assert_array_equal(np.isnan(got_p), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got_p), np.isinf(expected))
    fine = np.isfinite(expected)
    bound = 2 * steps * max(float(kind.limits.eps), rel)
    np.testing.assert_allclose(got_p[fine], expected[fine], rtol=bound, atol=bound)


def test_backends_agree_where_squares_vanish(place: str) -> None:
    """eps = 0: 1e-30 squared is below float32, so p leaves for infinity; where the gradient is 0 it is NaN."""
    desc = AdamStepDescriptor(shapes=((4,),), eps=0.0, weight_decay=0.0, element="float32")
    zeros = np.zeros(4, np.float32)
    g = np.array([1e-30, -1e-30, 0.0, 1e-10], np.float32)
    got = call(AdamStepPlan, desc, (), place, params=[np.ones(4)], grads=[g], exp_avg=[zeros], exp_avg_sq=[zeros],
               lr=0.25, step=1)["params"][0]  # fmt: skip
    np.testing.assert_allclose(got, [-np.inf, np.inf, np.nan, 0.75], rtol=1e-6)


def test_sixteen_bit_copies_follow(place: str) -> None:
    """params_copy is the new parameter, whatever it is."""
    desc = AdamStepDescriptor(shapes=((3,),), eps=0.0, weight_decay=0.0, element="float32")
    zeros = np.zeros(3, np.float32)
    got = call(
        AdamStepPlan,
        desc,
        (),
        place,
        params=[np.ones(3)],
        grads=[np.array([1e-30, 0.0, 1.0])],
        exp_avg=[zeros],
        exp_avg_sq=[zeros],
        params_copy=[zeros.astype(ml_dtypes.bfloat16)],
        lr=0.25,
        step=1,
    )
    np.testing.assert_array_equal(got["params_copy"][0].astype(np.float32), [-np.inf, np.nan, 0.75])
