"""jax.lax's convolutions beside JAX's."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError

jax = pytest.importorskip("jax")
lax = jax.lax


@pytest.fixture(autouse=True)
def _wide():
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        yield


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def compare(name: str, *given: object, **more: object) -> None:
    wanted = np.asarray(getattr(lax, name)(*given, **more))
    got = getattr(bc, name)(*given, **more)
    np.testing.assert_allclose(got, wanted, atol=1e-11)
    out = np.full(wanted.shape, np.nan)
    assert getattr(bc, name)(*given, out=out, **more) is out
    np.testing.assert_array_equal(out, got)


NHWC = ("NHWC", "HWIO", "NHWC")


@pytest.mark.parametrize("padding", ["VALID", "SAME", "SAME_LOWER", [(-1, 2), (3, 0)]])
@pytest.mark.parametrize(("lhs", "rhs", "stride"), [((1, 1), (1, 1), (1, 1)), ((2, 1), (1, 3), (2, 3))])
@pytest.mark.parametrize("numbers", [None, NHWC, ("CHWN", "IHWO", "NHCW")])
def test_general(padding: object, lhs: tuple, rhs: tuple, stride: tuple, numbers: object) -> None:
    if isinstance(padding, str) and max(lhs) > 1:
        padding = [(2, 0), (-1, 3)]
    x, w = drawn(2, 4, 9, 8), drawn(6, 2, 3, 2, seed=1)
    if numbers == NHWC:
        x, w = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    elif numbers is not None:
        x, w = x.transpose(1, 2, 3, 0), w.transpose(1, 2, 3, 0)
    more = {"lhs_dilation": lhs, "rhs_dilation": rhs, "dimension_numbers": numbers, "feature_group_count": 2}
    compare("conv_general_dilated", x, w, stride, padding, **more)


def test_numbers_of_axes() -> None:
    x, w = drawn(2, 9, 8, 4), drawn(3, 2, 4, 6, seed=1)
    numbers = lax.conv_dimension_numbers(x.shape, w.shape, NHWC)
    compare("conv_general_dilated", x, w, (1, 2), "SAME", dimension_numbers=numbers)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_plain_forms(rank: int) -> None:
    x, w = drawn(2, 4, *(7, 6, 5)[:rank]), drawn(6, 4, *(3, 2, 2)[:rank], seed=1)
    compare("conv", x, w, (2,) * rank, "SAME")
    compare("conv_with_general_padding", x, w, (1,) * rank, [(1, 2)] * rank, (2,) * rank, (1,) * rank)


def test_groups_of_the_batch() -> None:
    compare("conv_general_dilated", drawn(6, 4, 9, 8), drawn(6, 4, 3, 2, seed=1), (1, 2), "SAME", batch_group_count=3)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 1), (0, 3)]])
@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3), (4, 2)])
def test_transposed(padding: object, kernel: bool, stride: tuple) -> None:
    w = drawn(3, 2, 4, 6, seed=1)
    compare("conv_transpose", drawn(2, 5, 4, 6 if kernel else 4), w, stride, padding, transpose_kernel=kernel)
    more = {"rhs_dilation": (2, 1), "dimension_numbers": ("NCHW", "OIHW", "NCHW")}
    compare("conv_transpose", drawn(2, 4, 5, 4), drawn(6, 4, 3, 2), stride, padding, **more)


def test_patches_and_a_filter_for_each_place() -> None:
    x = drawn(2, 3, 7, 6)
    compare("conv_general_dilated_patches", x, (2, 3), (2, 1), "SAME")
    numbers = ("NHWC", "OIHW", "NHWC")
    turned = x.transpose(0, 2, 3, 1)
    compare(
        "conv_general_dilated_patches", turned, (2, 3), (1, 1), "VALID", rhs_dilation=(2, 1), dimension_numbers=numbers
    )
    w = drawn(5, 18, 6, 4, seed=1)
    compare("conv_general_dilated_local", x, w, (1, 1), "VALID", (2, 3))
    compare("conv_general_dilated_local", turned, w, (1, 1), "VALID", (2, 3), dimension_numbers=numbers)


def test_gradients_under_jit() -> None:
    import baracuda_py.jax as bj

    x, w = drawn(2, 4, 6, 5), drawn(6, 4, 3, 2, seed=1)

    def loss(package: object):
        return lambda x, w: (package.conv_general_dilated(x, w, (2, 1), "SAME", rhs_dilation=(1, 2)) ** 2).sum()

    got = jax.jit(jax.grad(loss(bj), (0, 1)))(x, w)
    wanted = jax.grad(loss(lax), (0, 1))(x, w)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_what_is_refused() -> None:
    x, w = drawn(2, 4, 9, 8), drawn(6, 4, 3, 2)
    for given in (((1,), "SAME"), ((1, 1), "FULL"), ((1, 1), [(1, 1)])):
        with pytest.raises(InvalidProblemError):
            bc.conv_general_dilated(x, w, *given)
    for more in (
        {"dimension_numbers": ("NCHW", "OIHW")},
        {"dimension_numbers": ("NCHH", "OIHW", "NCHW")},
        {"feature_group_count": 2},
        {"lhs_dilation": (2, 1)},
        {"batch_group_count": 4},
        {"batch_group_count": 2, "feature_group_count": 2},
    ):
        with pytest.raises(InvalidProblemError):
            bc.conv_general_dilated(x, w, (1, 1), "SAME", **more)
