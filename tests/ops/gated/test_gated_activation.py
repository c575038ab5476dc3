"""Gated activations: packed halves in both orders, the backward against differences, gradients that are not wanted."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.elementwise.unary import gelu, gelu_tanh, relu, sigmoid, silu
from baracuda_py.ops.gated import gated_activation_backward as backward
from baracuda_py.ops.gated.gated_kinds import Unit

ACTIVATIONS = {"glu": sigmoid, "reglu": relu, "swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_packed_halves(kind):
    x = np.random.default_rng(0).standard_normal((3, 5, 8))
    first, second = x[..., :4], x[..., 4:]
    act = ACTIVATIONS[kind]
    function, turned = getattr(bc, kind), np.ascontiguousarray(x.swapaxes(0, 2))
    np.testing.assert_array_equal(function(x, order="gate_first"), act(first) * second)
    np.testing.assert_array_equal(function(x, order="gate_last"), first * act(second))
    np.testing.assert_array_equal(function(x), function(x, order="gate_last" if kind == "glu" else "gate_first"))
    np.testing.assert_array_equal(function(turned, axis=0).swapaxes(0, 2), function(x))
    np.testing.assert_array_equal(bc.gated_activation(x, kind=kind), function(x))
    np.testing.assert_array_equal(function(first, second), act(first) * second)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_backward_is_the_difference_of_the_forward(kind):
    rng = np.random.default_rng(1)
    gate, up, dy, h = rng.standard_normal(50), rng.standard_normal(50), rng.standard_normal(50), 1e-6
    dgate, dup = bc.gated_activation_backward(dy, gate, up, kind=kind)
    run = getattr(bc, kind)
    np.testing.assert_allclose(dgate, dy * (run(gate + h, up) - run(gate - h, up)) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dup, dy * run(gate, np.ones(50)), rtol=1e-12)


def test_one_packed_gradient():
    gate, up, dy = (np.random.default_rng(2).standard_normal((4, 6)) for _ in range(3))
    packed = np.empty((4, 12))
    x = np.concatenate([gate, up], axis=-1)
    bc.swiglu_backward(dy, gate, up, out=list(bc.halves(packed)))
    dgate, dup = bc.swiglu_backward(dy, gate, up)
    np.testing.assert_array_equal(packed, np.concatenate([dgate, dup], axis=-1))
    np.testing.assert_array_equal(bc.swiglu_backward(dy, x), packed)
    np.testing.assert_array_equal(bc.swiglu_backward(dy.T, x.T, axis=0), packed.T)
    given = np.zeros((4, 12))
    assert bc.swiglu_backward(dy, x, out=given) is given
    np.testing.assert_array_equal(given, packed)
    last = bc.glu_backward(dy, np.concatenate([up, gate], axis=-1))
    np.testing.assert_array_equal(last, np.concatenate(bc.glu_backward(dy, gate, up)[::-1], axis=-1))
    with pytest.raises(InvalidProblemError, match="both halves of one gradient"):
        bc.swiglu_backward(dy, x, return_dup=False)
    with pytest.raises(InvalidProblemError, match="nothing to split"):
        bc.swiglu(gate, up, axis=0)


def test_an_unwanted_gradient():
    gate, up, dy = (np.random.default_rng(3).standard_normal(9) for _ in range(3))
    both = bc.swiglu_backward(dy, gate, up)
    np.testing.assert_array_equal(bc.swiglu_backward(dy, gate, up, return_dup=False), both[0])
    np.testing.assert_array_equal(bc.swiglu_backward(dy, gate, up, return_dgate=False), both[1])
    plan = backward.GatedActivationBackwardPlan.select(
        backward.GatedActivationBackwardDescriptor(kind="glu", shape=(9,), element="float64"), device="cpu"
    )
    verdict = plan.can_implement(plan.args(dy=dy, gate=gate, up=up))
    assert not verdict and isinstance(verdict.error, InvalidProblemError)


def test_halves_need_an_even_axis():
    with pytest.raises(InvalidProblemError, match="even last axis"):
        bc.halves(np.zeros((2, 3)))
    with pytest.raises(InvalidProblemError, match="gate_first"):
        bc.halves(np.zeros((2, 4)), "up_first")
    with pytest.raises(InvalidProblemError, match="axis must be an integer in"):
        bc.glu(np.zeros((2, 4)), axis=2)
    with pytest.raises(InvalidProblemError, match="even axis 0"):
        bc.glu(np.zeros((3, 4)), axis=0)


def test_coefficients_of_the_activation():
    gate, up = np.random.default_rng(4).standard_normal((2, 9))
    leaky = bc.leaky_relu(gate, negative_slope=0.3) * up
    np.testing.assert_allclose(bc.leaky_relu_glu(gate, up, negative_slope=0.3), leaky, rtol=1e-15)
    np.testing.assert_allclose(bc.softplus_glu(gate, up, beta=2.0), bc.softplus(gate, beta=2.0) * up, rtol=1e-15)
    with pytest.raises(InvalidProblemError, match="softplus_glu has beta, threshold; alpha must be None"):
        bc.gated_activation(gate, up, kind="softplus_glu", alpha=1.0)
    with pytest.raises(bc.UnknownKeywordError, match="alpha"):
        bc.softplus_glu(gate, up, alpha=1.0)


OF_A_GATE = [kind for kind in bc.GatedActivationKind if not isinstance(kind.row, Unit)]


@pytest.mark.parametrize("kind", OF_A_GATE, ids=lambda kind: kind.value)
def test_every_kind_is_its_activation_times_up(kind):
    gate, up, dy = np.random.default_rng(5).standard_normal((3, 64))
    coefficients = [c.default_for(bc.ElementKind.F64) for c in kind.row.coefficients]
    np.testing.assert_allclose(
        getattr(bc, kind.value)(gate, up), kind.row.formula(gate, *coefficients) * up, rtol=1e-13
    )
    dgate, dup = getattr(bc, f"{kind.value}_backward")(dy, gate, up)
    np.testing.assert_allclose(dgate, kind.row.gradient(dy * up, gate, *coefficients), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dup, kind.row.formula(gate, *coefficients) * dy, rtol=1e-13)


def test_the_unit_of_gpt_oss():
    """Against its own formula and differences; gate and up interleaved; no gradient where a limit cuts."""
    rng = np.random.default_rng(2)
    gate, up, dy = 6 * rng.standard_normal((3, 400))

    def formula(gate, up, alpha=1.702, limit=7.0):
        g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return g / (1 + np.exp(-alpha * g)) * (u + 1)

    np.testing.assert_allclose(bc.swiglu_oai(gate, up), formula(gate, up), rtol=1e-13)
    np.testing.assert_allclose(bc.swiglu_oai(gate, up, alpha=2, limit=3), formula(gate, up, 2, 3), rtol=1e-13)
    np.testing.assert_allclose(bc.swiglu_oai(gate, up, limit=np.inf), formula(gate, up, limit=np.inf), rtol=1e-13)
    packed = np.stack((gate, up), -1).reshape(-1)
    np.testing.assert_array_equal(bc.swiglu_oai(packed), bc.swiglu_oai(gate, up))
    np.testing.assert_array_equal(
        bc.swiglu_oai(np.concatenate((gate, up)), order="gate_first"), bc.swiglu_oai(gate, up)
    )
    dgate, dup = bc.swiglu_oai_backward(dy, gate, up)
    step = 1e-6
    slopes = [
        (formula(gate + step * a, up + step * b) - formula(gate - step * a, up - step * b)) / (2 * step)
        for a, b in ((1, 0), (0, 1))
    ]
    np.testing.assert_allclose(dgate, dy * slopes[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(dup, dy * slopes[1], rtol=1e-6, atol=1e-7)
    assert not dgate[gate > 7].any() and not dup[np.abs(up) > 7].any() and (gate > 7).any()
    np.testing.assert_array_equal(bc.swiglu_oai_backward(dy, packed), np.stack((dgate, dup), -1).reshape(-1))
    at_limit = bc.swiglu_oai_backward(np.ones(1), np.array([7.0]), np.array([-7.0]))
    assert at_limit[0] != 0 and at_limit[1] != 0  # PyTorch's clamp has the gradient at the limit itself
    with pytest.raises(InvalidProblemError, match=r"limit of swiglu_oai must be in \[0, inf\], got -1"):
        bc.swiglu_oai(gate, up, limit=-1)
