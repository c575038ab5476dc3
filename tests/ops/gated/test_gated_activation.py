"""Gated activations: packed halves in both orders, the backward against differences, gradients that are not wanted."""

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.elementwise.unary import gelu, gelu_tanh, relu, sigmoid, silu
from baracuda_py.ops.gated import gated_activation as forward
from baracuda_py.ops.gated import gated_activation_backward as backward

ACTIVATIONS = {"glu": sigmoid, "reglu": relu, "swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_packed_halves(kind):
    x = np.random.default_rng(0).standard_normal((3, 5, 8))
    first, second = x[..., :4], x[..., 4:]
    act = ACTIVATIONS[kind]
    np.testing.assert_array_equal(forward.gated_activation_packed(x, kind=kind), act(first) * second)
    np.testing.assert_array_equal(forward.gated_activation_packed(x, kind=kind, order="gate_last"), first * act(second))
    np.testing.assert_array_equal(getattr(forward, kind)(first, second), act(first) * second)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_backward_is_the_difference_of_the_forward(kind):
    rng = np.random.default_rng(1)
    gate, up, dy, h = rng.standard_normal(50), rng.standard_normal(50), rng.standard_normal(50), 1e-6
    dgate, dup = backward.gated_activation_backward(dy, gate, up, kind=kind)
    run = getattr(forward, kind)
    np.testing.assert_allclose(dgate, dy * (run(gate + h, up) - run(gate - h, up)) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dup, dy * run(gate, np.ones(50)), rtol=1e-12)


def test_one_packed_gradient():
    gate, up, dy = (np.random.default_rng(2).standard_normal((4, 6)) for _ in range(3))
    packed = np.empty((4, 12))
    backward.swiglu_backward(dy, gate, up, out=list(forward.halves(packed)))
    dgate, dup = backward.swiglu_backward(dy, gate, up)
    np.testing.assert_array_equal(packed, np.concatenate([dgate, dup], axis=-1))


def test_an_unwanted_gradient():
    gate, up, dy = (np.random.default_rng(3).standard_normal(9) for _ in range(3))
    both = backward.swiglu_backward(dy, gate, up)
    np.testing.assert_array_equal(backward.swiglu_backward(dy, gate, up, return_dup=False), both[0])
    np.testing.assert_array_equal(backward.swiglu_backward(dy, gate, up, return_dgate=False), both[1])
    plan = backward.GatedActivationBackwardPlan.select(
        backward.GatedActivationBackwardDescriptor(kind="glu", shape=(9,), element="float64"), device="cpu"
    )
    verdict = plan.can_implement(plan.args(dy=dy, gate=gate, up=up))
    assert not verdict and isinstance(verdict.error, InvalidProblemError)


def test_halves_need_an_even_axis():
    with pytest.raises(InvalidProblemError, match="even last axis"):
        forward.halves(np.zeros((2, 3)))
    with pytest.raises(InvalidProblemError, match="gate_first"):
        forward.halves(np.zeros((2, 4)), "up_first")
