"""Names that NumPy, JAX or SciPy have and torch has not: what is not given is as it is there, and so are results."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
pytest.importorskip("jax")

WORDS = {"ddof": "correction", "method": "interpolation", "weights": "weight", "dimension": "axis"}
"""Their word → ours."""

STATED = {
    "choose mode", "ravel_multi_index mode",  # "raise" would wait for the device
    "unwrap discont",  # None is half of the period there, and no less counts here
    "flatnonzero fill_value",  # -1 is no place
    "reduce_window padding",  # "VALID" is none
    "schur output",  # the real form is refused
}  # fmt: skip
"""What has another default, and why."""

SAME = {None: (0, False, (None, None)), False: (None,), "…": (None, ())}
"""Defaults of ours that mean one of theirs: decimals and density that are not given, a shape that operands say."""


def _modules(*names: str) -> list[Any]:
    return [module for name in names if (module := _module(name)) is not None]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


TORCH = [torch, torch.nn.functional, torch.Tensor, torch.linalg, torch.special]
OTHERS = _modules("numpy", "jax.numpy", "jax.lax", "jax.nn", "jax.scipy.special", "jax.ops", "scipy.linalg")


def _elsewhere() -> Iterator[tuple[str, Any, Any]]:
    """Name, module and function of every name that torch has not."""
    for name in EXPORTS:
        if name[0].islower() and not any(hasattr(one, name) for one in TORCH):
            for module in OTHERS:
                function = getattr(module, name, None)
                if callable(function) and not inspect.isclass(function):
                    yield name, module, function


def _parameters(function: Any) -> Any:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # of a function written in C
        return {}


def _means(ours: Any, theirs: Any) -> bool:
    if ours is inspect.Parameter.empty or repr(theirs) == "<no value>":
        return True  # must be given here, or is told from the array there
    key = "…" if repr(ours) == "…" else ours
    return bool(ours == theirs) or (not isinstance(key, (list, dict)) and theirs in SAME.get(key, ()))


def test_what_is_not_given_is_what_it_is_there() -> None:
    wrong, compared = [], 0
    for name, module, function in _elsewhere():
        own = _parameters(getattr(bc, name))
        for word, parameter in _parameters(function).items():
            ours = own.get(WORDS.get(word, word))
            if ours is None or word == "out" or parameter.default is parameter.empty:
                continue
            compared += 1
            said = f"{name} {WORDS.get(word, word)}"
            if said not in STATED and not _means(ours.default, parameter.default):
                wrong.append(f"{said}: {ours.default} here, {parameter.default} in {module.__name__}")
    assert not wrong
    assert compared > 100


RNG = np.random.default_rng(11)
X, V = RNG.standard_normal((3, 4)), RNG.standard_normal(5)
HOLES = np.where(X > 0.7, np.nan, X)
WHOLE = RNG.integers(1, 9, (3, 4))
CALLS: dict[str, tuple[Any, ...]] = {
    "nanvar": (HOLES,), "nanstd": (HOLES,), "nancumsum": (HOLES,), "nancumprod": (HOLES,), "cumulative_sum": (V,),
    "cumulative_prod": (V,), "nanprod": (HOLES,), "nanmax": (HOLES,), "nanmin": (HOLES,), "nanargmax": (HOLES,),
    "nanargmin": (HOLES,), "ptp": (X,), "average": (X,), "percentile": (X, 30.0), "nanpercentile": (HOLES, 30.0),
    "append": (X, V), "delete": (X, 3), "insert": (X, 3, V), "ediff1d": (X,), "unwrap": (5 * X,), "rollaxis": (X, 1),
    "lexsort": (WHOLE,), "sort_complex": (X + 1j,), "around": (X,), "rint": (X,), "tri": (3,), "identity": (3,),
    "take_along_axis": (X, WHOLE % 4), "histogram_bin_edges": (X,), "array_split": (V, 2), "unstack": (X,),
    "geomspace": (1.0, 8.0), "broadcast_arrays": (X, X[:1]), "packbits": (WHOLE % 2 == 1,), "cbrt": (X,),
    "vecmat": (X[:, 0], X), "matvec": (X, X[0]), "digitize": (V, np.sort(V)), "array_equal": (X, X), "hanning": (5,),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_numpys_results(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of rows of NaN
        right = getattr(np, name)(*CALLS[name])
    ours = getattr(bc, name)(*CALLS[name])
    several = isinstance(right, (tuple, list))
    for one, other in zip(ours, right, strict=True) if several else [(ours, right)]:
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6)


JAX_CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cumlogsumexp": ("jax.lax", (X,)), "reduce_sum": ("jax.lax", (X, (0,))), "top_k": ("jax.lax", (X, 2)),
    "logmeanexp": ("jax.nn", (X,)), "standardize": ("jax.nn", (X,)), "squareplus": ("jax.nn", (X,)),
    "rev": ("jax.lax", (X, (1,))), "index_in_dim": ("jax.lax", (X, 1)), "sort_key_val": ("jax.lax", (V, V)),
    "dynamic_index_in_dim": ("jax.lax", (X, 1)), "collapse": ("jax.lax", (X, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", JAX_CALLS)
def test_jaxs_results(name: str) -> None:
    module, given = JAX_CALLS[name]
    right = getattr(importlib.import_module(module), name)(*given)
    words = {"reduce_sum": ("x", "axis"), "rev": ("x", "axis"), "logmeanexp": ("x",)}.get(name)
    ours = getattr(bc, name)(**dict(zip(words, given, strict=True))) if words else getattr(bc, name)(*given)
    for one, other in zip(ours, right, strict=True) if isinstance(right, (tuple, list)) else [(ours, right)]:
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["unique_all", "unique_inverse", "unique_counts", "unique_values"])
def test_uniques_come_in_numpys_order_and_shape(name: str) -> None:
    right = getattr(np, name)(WHOLE)
    ours = getattr(bc, name)(WHOLE)
    number = int(ours[-1])
    for one, other in zip(ours[:-1], right if isinstance(right, tuple) else (np.sort(right),), strict=True):
        assert (one if one.shape == WHOLE.shape else one[:number]).tolist() == other.tolist()
    to = tuple(np.empty_like(one) for one in ours)
    again = getattr(bc, name)(WHOLE, out=to)
    assert all(one.ravel().tolist() == other.ravel().tolist() for one, other in zip(again, ours, strict=True))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_an_axis_is_asked_for_where_numpy_asks(name: str) -> None:
    with pytest.raises(ValueError):
        getattr(np, name)(X)
    with pytest.raises(InvalidProblemError, match="needs axis="):
        getattr(bc, name)(X)
    np.testing.assert_allclose(getattr(bc, name)(X, axis=0), getattr(np, name)(X, axis=0))


def test_a_scan_of_all_elements_hands_its_gradient_back() -> None:
    x = torch.tensor(HOLES, requires_grad=True)
    bc.nancumsum(x).sum().backward()
    places = np.arange(12, 0, -1.0).reshape(3, 4)
    assert x.grad.tolist() == np.where(np.isnan(HOLES), 0, places).tolist()
    transposed = torch.tensor(HOLES.T.copy()).T
    assert torch.equal(bc.nancumsum(transposed), torch.tensor(np.nancumsum(HOLES)))


DTYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64]
BIG = torch.tensor([[2**30, 2**30, 2**30, 5], [200, 100, 3, -7]], dtype=torch.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_a_total_has_the_dtype_that_is_asked_for(name: str, dtype: Any) -> None:
    given: list[dict[str, Any]] = [{"dim": 1}, {"dim": 0}] + [{}] * (not name.startswith("cum"))
    for facts in given:
        ours, right = getattr(F, name)(BIG, **facts, dtype=dtype), getattr(torch, name)(BIG, **facts, dtype=dtype)
        assert ours.dtype == right.dtype and torch.allclose(ours, right), facts
        out = torch.empty_like(right)
        assert getattr(F, name)(BIG, **facts, dtype=dtype, out=out) is out
        assert torch.allclose(out, right)


F = bc.nn.functional
INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["dot", "vdot", "inner"])
def test_products_of_integers_have_their_element_and_wrap(name: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    a, b = np.array([limits.max, 3, 7], dtype), np.array([limits.max, limits.max, 2], dtype)
    total = sum(int(p) * int(q) for p, q in zip(a, b, strict=True))
    right = (total - limits.min) % 2**limits.bits + limits.min
    ours = getattr(bc, name)(a, b)
    assert ours.dtype == dtype and ours.shape == () and int(ours) == right
    out = np.empty((), dtype)
    assert getattr(bc, name)(a, b, out=out) is out and int(out) == right


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_sum_to_a_size_keeps_the_element(dtype: str) -> None:
    x = np.array([[np.iinfo(dtype).max, 1, 2], [1, 1, 2]], dtype)
    with np.errstate(over="ignore"):
        right = x.sum(0, dtype=dtype)
    for shape, wanted in (((3,), right), ((1, 3), right[None]), ((2, 3), x)):
        ours = bc.sum_to_size(x, shape)
        assert ours.dtype == dtype and ours.tolist() == wanted.tolist()
    out = np.empty(3, dtype)
    assert bc.sum_to_size(x, (3,), out=out) is out and out.tolist() == right.tolist()


@pytest.mark.parametrize("equation", ["i->", "ij->i", "ij->j", "ij->", "ii->", "ii->i", "ij->ji"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_einsum_of_one_operand_is_torchs(equation: str, dtype: str) -> None:
    x = torch.full((3,) if equation == "i->" else (3, 3), 100, dtype=getattr(torch, dtype))
    ours, right = bc.einsum(equation, x), torch.einsum(equation, x)
    assert ours.dtype == right.dtype and torch.equal(ours, right)
    narrow = torch.empty(right.shape, dtype=x.dtype)
    assert torch.equal(bc.einsum(equation, x, out=narrow), right.to(x.dtype))


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_powers_of_integers_are_of_64_bits(dtype: str) -> None:
    x = np.array([1, 100, 2], dtype)
    ours, right = bc.vander(x, 5), np.vander(x, 5)
    assert ours.dtype == ("uint64" if dtype == "uint64" else "int64")  # of uint64 NumPy makes floats
    assert ours.tolist() == right.tolist()


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
def test_covariances_of_one_row_are_a_number(name: str) -> None:
    row = np.array([[1.0, 2, 4]])
    ours, right = getattr(bc, name)(row), getattr(np, name)(row)
    assert ours.shape == right.shape == ()
    np.testing.assert_allclose(ours, right)
    out = np.empty(())
    assert getattr(bc, name)(row, out=out) is out and out == ours
    x, y = (torch.tensor(row, requires_grad=True) for _ in range(2))
    getattr(bc, name)(x).backward()
    getattr(torch, name)(y).backward()
    assert torch.allclose(x.grad, y.grad, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_a_histogram_of_nothing_is_zeros_between_0_and_1(shape: tuple[int, ...], dtype: str) -> None:
    x = np.zeros(shape, dtype)
    for one, other in zip(bc.histogram(x, 4), np.histogram(x, 4), strict=True):
        assert one.tolist() == other.tolist()
    assert bc.histogram_bin_edges(x, 4).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert bc.histc(x, 3).tolist() == [0, 0, 0]
    counts, *_ = bc.histogram2d(x.reshape(-1), x.reshape(-1), 2)
    assert counts.tolist() == [[0, 0], [0, 0]]


def test_a_refusal_of_complex_numbers_does_not_speak_of_integers() -> None:
    checked: list[Callable[..., Any]] = [bc.logcumsumexp, bc.cumlogsumexp, bc.nancumsum, bc.logsumexp, bc.amax]
    for function in checked:
        with pytest.raises(bc.UnsupportedError) as said:
            function(np.ones(3, np.complex64))
        assert "integer" not in str(said.value) and "complex64" in str(said.value)
