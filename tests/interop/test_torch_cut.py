"""No function returns a tensor that is cut from autograd's graph: it records what it does, or refuses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.core import ElementKind

torch = pytest.importorskip("torch")
from bridged import flat, problems, served, tensor  # noqa: E402
from hand_written import GIVEN, operands_of  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402
from baracuda_py.core.args import scalars_of  # noqa: E402

NAMES = [n for n in EXPORTS if not isinstance(f := getattr(bc, n), type) and callable(f) and hasattr(f, "plan")]
FLOATS = (ElementKind.F32, ElementKind.F64, ElementKind.F16, ElementKind.BF16, ElementKind.C64, *ElementKind)
# Of one triangle, with gradients for changes that are Hermitian.
HERMITIAN = ("cholesky_ex", "cholesky", "cho_factor", "eigh", "eigvalsh", "cg", "lobpcg", "inverse_root")
APART = {  # operands whose values are not in the result, or not in each of several
    "astype": [1], "fractional_max_pool2d": [1], "fractional_max_pool2d_with_indices": [1],
    "fractional_max_pool3d": [1], "fractional_max_pool3d_with_indices": [1],
    "batch_norm_gather_stats_with_counts": [1], "cast": [1], "lora_matmul_backward": [4],
    "histc": [0], "intersect1d": [1], "rankdata": [0], "setdiff1d": [1], "sort_key_val": [0, 1],
    "convert_element_type": [1], "piecewise": [0], "poly_norm_backward": [1, 2],
    "multi_head_attention_forward": [2, 5, 6], "quantized_linear_backward": [1], "llm_int8_linear_backward": [1],
    "aqlm_linear_backward": [1],
    "sparse24_matmul_backward": [1, 2, 3], "sparse24_prune_backward": [1], "spectral_norm_step": [1],
    "syrk_backward": [1, 2],
    **{f"{name}_backward": [1, 2] for name in ("convolve", "convolve2d", "correlate", "correlate2d")},
    "polyval_backward": [1], "moe_permute_pad_with_probs": [0, 1], "moe_sort_chunks_by_index_with_probs": [0, 1],
    "hyper_connection_weights": [1, 2, 3, 4, 5, 6],
    "slstm_cell": [1, 2],
    "permute_2d_sparse_data": [0, 1],
    "coherence": [0, 1], "csd": [0, 1], "freqz": [0, 1], "periodogram": [0], "welch": [0],
    "fold_batch_norm": [0, 1, 2, 5], "lu": [0], "lu_unpack": [0], "qr_multiply": [1], "rsf2csf": [1],
    "fake_quantize_per_channel_affine": [0],  # of steps of 0.5 the estimator is no derivative
    "fused_moving_avg_obs_fake_quant": [0, 1, 2],
    "learnable_fake_quantize": [0, 1, 2], "fake_quantize_learnable_per_tensor_affine": [0, 1, 2],
    "fake_quantize_learnable_per_channel_affine": [0, 1, 2],
    **{name: [0] for name in ("ball", "orthogonal", "rademacher", "rand", "rand_like", "randint", "randint_like",
                              "randn", "randn_like")},
}  # fmt: skip

WHOLE = {
    "connected_components",
    "distance_transform",
    "masks_to_boxes",
    "moe_align_block_size",
    "one_hot",
    "packbits",
    "scaled_matmul",
    "sparse_conv_sites",
    "sparse_conv_table",
    "swizzle_scales",
    "ternary_unpack",
    "unpack_signs",
    "unpackbits",
    "unswizzle_scales",
}  # of indices and bits, whatever else their plans take


def tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor(value)
    return [tensors(one) for one in value] if isinstance(value, list) else value


def of_the_page(name: str) -> tuple[list[Any], dict[str, Any]] | None:
    """A call of a generated function with operands that its page draws."""
    function: Any = getattr(bc, name)
    kind = function.fixed.get("kind", next(iter(function.plan.kinds or [None])))
    taken = inspect.signature(function).parameters
    for element in [e for e in FLOATS if e in served(function.plan, kind)]:
        for problem in problems(function.plan, kind, element):
            call, fixed = problem.call, function.fixed
            facts = {n: v for n, v in call.attributes.items() if n in taken}
            if any(getattr(problem.desc, n, v) != v for n, v in fixed.items()):
                continue
            held = {n: v for n, v in {**call.arrays, **call.scalars}.items() if n in taken and v is not None}
            try:
                function(**held, **facts)
            except Exception:
                continue
            return [], {**held, **facts}
    return None


def call_of(name: str) -> tuple[list[Any], dict[str, Any]]:
    function: Any = getattr(bc, name)
    if name not in GIVEN and hasattr(function, "entry") and (found := of_the_page(name)):
        return found
    operands, facts = operands_of(name)
    return [tensors(one) for one in operands], {n: tensors(value) for n, value in facts.items()}


def takes_floats(function: Any) -> bool:
    kind = function.fixed.get("kind")
    kinds = function.plan.kinds or [None] if kind is None else [kind]
    return any(e.is_inexact for one in kinds for e in served(function.plan, one))


def results(made: Any) -> Iterator[Any]:
    for one in flat(made):
        if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()):
            yield one


@pytest.mark.parametrize("name", NAMES)
def test_results_are_recorded_or_refused(name: str) -> None:
    """For each operand alone, in the first call and in those that are prepared by it."""
    operands, facts = call_of(name)
    leaves = list(results([*operands, *facts.values()]))
    assert leaves or name in WHOLE or not takes_floats(getattr(bc, name)), "give it floats in GIVEN"
    for i, leaf in enumerate(leaves):
        for one in leaves:
            one.requires_grad_(one is leaf)
        for function in (getattr(bc, name), getattr(bt, name)):
            for _ in range(2):
                try:
                    made = function(*operands, **facts)
                except bc.UnsupportedError as error:
                    assert "requires grad" in str(error), error
                    continue
                cut = [one for one in results(made) if not one.requires_grad]
                assert not cut or i in APART.get(name, ()), f"operand {i}"


SCALARS = [n for n in NAMES if isinstance(p := getattr(bc, n).plan, type) and scalars_of(p.args)]


@pytest.mark.parametrize("name", SCALARS)
def test_a_number_that_requires_a_gradient_has_it_or_is_refused_after_one_that_does_not(name: str) -> None:
    """A 0-d tensor in place of a number, in calls that a prepared one would be taken for."""
    operands, facts = call_of(name)
    for leaf in results([*operands, *facts.values()]):
        leaf.requires_grad_()
    function, taken = getattr(bc, name), inspect.signature(getattr(bc, name)).parameters
    for spec in scalars_of(function.plan.args):
        if spec.integer or spec.name not in taken:
            continue
        held = {n: v for n, v in facts.items() if n != spec.name}
        of = next(results([*operands, *held.values()]), torch.empty((), dtype=torch.float64))
        number = torch.tensor(2.0, dtype=of.dtype)
        try:
            for _ in range(2):
                made = function(*operands, **held, **{spec.name: number})
        except (bc.BaracudaError, TypeError):
            continue  # it takes no gradient, or no tensor, at all
        if not list(results(made)):
            continue

        def total(value: Any, held: dict[str, Any] = held, word: str = spec.name) -> Any:
            made = function(*operands, **held, **{word: value})
            return sum((one.double() ** 2).sum() for one in results(made))

        leaf = number.clone().requires_grad_()
        try:
            (got,) = torch.autograd.grad(total(leaf), leaf)
        except bc.UnsupportedError as error:
            assert re.match(rf"{spec.name}: .*requires grad", str(error)), error
            continue
        want = total(number + 0.5) - total(number - 0.5)  # of results that are linear in it
        torch.testing.assert_close(got.double(), want.detach(), rtol=1e-3, atol=1e-4)


BEYOND = {"zeta": 1.0, "orpo_loss": -1.0}  # where other numbers have no value


def doubled(value: Any, shift: float) -> Any:
    """In float64, and within (0.1, 0.9), where most functions are defined and smooth."""
    if isinstance(value, torch.Tensor):
        whole = value.to(torch.complex128) if value.is_complex() else value
        return value.double().sigmoid() * 0.8 + 0.1 + shift if value.is_floating_point() else whole
    return [doubled(one, shift) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [n for n in NAMES if not hasattr(getattr(bc, n), "entry")])
def test_gradients_of_functions_written_by_hand_are_right(name: str) -> None:
    """Against differences in float64, of all operands that have a gradient at once, and twice the same."""
    given, taken = call_of(name)
    shift = BEYOND.get(name, 0.0)
    operands, facts = [doubled(one, shift) for one in given], {n: doubled(value, shift) for n, value in taken.items()}
    leaves = []
    for i, leaf in enumerate(results([*operands, *facts.values()])):
        leaf.requires_grad_()
        try:
            differentiable = any(one.requires_grad for one in results(getattr(bt, name)(*operands, **facts)))
        except (bc.UnsupportedError, bc.InvalidProblemError):  # no gradient, or no float64
            differentiable = False
        leaf.requires_grad_(False)
        leaves += [leaf] if differentiable and i not in APART.get(name, ()) else []
    if not leaves:
        return
    for leaf in leaves:
        leaf.requires_grad_()

    def outputs(*values: Any) -> tuple[Any, ...]:
        if name in HERMITIAN:
            values = tuple((value + value.mH) / 2 for value in values)
        held = {id(leaf): value for leaf, value in zip(leaves, values, strict=True)}

        def put(value: Any) -> Any:
            return [put(one) for one in value] if isinstance(value, list) else held.get(id(value), value)

        made = getattr(bt, name)(*map(put, operands), **{n: put(value) for n, value in facts.items()})
        found = tuple(
            one.masked_fill(one.isinf(), 0) for one in results(made) if one.requires_grad
        )  # masks hide by -inf
        alone = name.endswith("_with_stats") or name in ("native_batch_norm", "native_group_norm", "eig")
        return found[:1] if alone else found  # none comes through the lse, mean and rstd, or through phases

    for _ in range(2):
        assert torch.autograd.gradcheck(outputs, tuple(leaves), fast_mode=True, atol=1e-4, rtol=1e-3)
