"""JAX: arrays in, arrays out; what is traced or would be written in place is told what to do."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import ElementKind
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.arrays import read
from baracuda_py.interop import jax_arrays
from baracuda_py.testing.draw import SeededDraw, combinations, make_case

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave the GPU's memory to the other tests
jax = pytest.importorskip("jax")
jnp = jax.numpy
FLOATS = ["float32", "float16", "bfloat16"]


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    """The host, where JAX would otherwise put arrays on the GPU that it finds."""
    with jax.default_device(None if request.node.get_closest_marker("gpu") else jax.devices("cpu")[0]):
        yield


def made(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def wide(a: Any) -> np.ndarray:
    return np.asarray(a).astype(np.float64)


# -- arrays out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_return_jax_arrays(dtype: str) -> None:
    x, weight = made(3, 8, dtype=dtype), made(8, dtype=dtype, seed=1)
    y = bc.rms_norm(x, weight)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.devices() == x.devices()
    want = wide(x) / np.sqrt(np.mean(wide(x) ** 2, -1, keepdims=True) + 1e-6) * wide(weight)
    np.testing.assert_allclose(wide(y), want, rtol=4 * float(jnp.finfo(dtype).eps), atol=1e-6)
    assert np.array_equal(wide(x), wide(made(3, 8, dtype=dtype))), "inputs are left alone"


def test_several_outputs_and_lists() -> None:
    x = made(3, 8)
    y, rstd = bc.rms_norm(x, return_rstd=True)
    assert isinstance(y, jax.Array) and isinstance(rstd, jax.Array) and rstd.shape == (3,)
    ids, logprob = bc.sample(x, seed=3, top_k=1, return_logprob=True)
    assert isinstance(logprob, jax.Array) and ids.tolist() == np.argmax(np.asarray(x), -1).tolist()
    grads = bc.rms_norm_backward(made(3, 8, seed=2), x, rstd, made(8, seed=3))
    assert all(isinstance(g, jax.Array) for g in grads) and [g.shape for g in grads] == [(3, 8), (8,)]


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_attention_in_both_layouts(layout: str) -> None:
    q, k, v = (made(1, 2, 2, 16, seed=i) for i in range(3))
    y, lse = bc.flash_sdpa(q, k, v, layout=layout, return_lse=True)
    assert isinstance(y, jax.Array) and isinstance(lse, jax.Array) and y.shape == q.shape
    a, b, c = (wide(t) if layout == "bhsd" else wide(t).swapaxes(1, 2) for t in (q, k, v))
    scores = a @ b.swapaxes(-1, -2) / 4
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    want = weights @ c if layout == "bhsd" else (weights @ c).swapaxes(1, 2)
    np.testing.assert_allclose(wide(y), want, rtol=1e-5, atol=1e-6)
    given = np.empty(q.shape, np.float32)
    assert bc.flash_sdpa(q, k, v, layout=layout, out=given) is given
    np.testing.assert_allclose(given, want, rtol=1e-5, atol=1e-6)


def calls() -> list[Any]:
    """Every generated function of plain inputs and outputs, one for each plan."""
    found: dict[Any, Any] = {}
    for name in dir(bc):
        function = getattr(bc, name)
        plan = getattr(function, "plan", None)
        if plan is None or isinstance(function, type) or not hasattr(function, "entry"):
            continue  # no function, or one written by hand, with parameters of its own
        if "element" not in inspect.signature(function).parameters:
            continue
        if all(s.role != "inout" for s in arrays_of(plan.args)):
            found.setdefault(plan, []).append(function)
    return [min(functions, key=lambda f: len(f.fixed)) for functions in found.values()]


@pytest.mark.parametrize("function", calls(), ids=lambda f: f.__name__)
def test_every_function_returns_what_numpy_returns(function: Any) -> None:
    """With 64-bit elements on: every output is JAX's, and has the dtype and bits of the same call on NumPy arrays."""
    plan = function.plan
    kind = function.fixed.get("kind")
    pairs = [(k, e) for k, e in combinations(plan) if kind in (None, k)]
    names = inspect.signature(function).parameters
    for i, (k, element) in enumerate(pairs[:3]):
        drawn = (make_case(plan, SeededDraw(i + 3 * n, element, k)) for n in range(500))
        case = next(c for c in drawn if all(getattr(c.desc, name) == value for name, value in function.fixed.items()))
        facts = {f.name: getattr(case.desc, f.name) for f in dataclasses.fields(case.desc) if f.name in names}
        facts |= {s.name: case.arrays[s.name] for s in scalars_of(plan.args) if s.name in names}
        asked = {f"return_{s.name}": s.name in case.wanted for s in arrays_of(plan.args)}
        facts |= {name: value for name, value in asked.items() if name in names}
        given = {s.name: case.arrays[s.name] for s in arrays_of(plan.args) if s.reads and s.name in names}
        with jax.enable_x64(True):
            traded = {n: jax.tree.map(jnp.asarray, a) for n, a in given.items()}
            if any(a.dtype != b.dtype for a, b in zip(*map(jax.tree.leaves, (given, traded)), strict=True)):
                continue
            want, got = function(**given, **facts), function(**traded, **facts)
            wants, gots = jax.tree.leaves(want), jax.tree.leaves(got)
            assert wants and len(wants) == len(gots)
            for a, b in zip(wants, gots, strict=True):
                assert isinstance(b, jax.Array) and a.shape == b.shape
                assert np.asarray(b).view(a.dtype).tobytes() == np.ascontiguousarray(a).tobytes()


def test_given_outputs_are_returned_as_they_are() -> None:
    x, y = made(3, 8), np.empty((3, 8), np.float32)
    assert bc.exp(x, out=y) is y
    both = bc.rms_norm(x, return_rstd=True, out={"y": y})
    assert both[0] is y and isinstance(both[1], jax.Array)
    with pytest.raises(bc.InvalidProblemError, match=r"y would be written, and JAX arrays are immutable; give a CuPy"):
        bc.exp(x, out=x)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 3)])
def test_every_shape_and_no_copy(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    buffers: list[Any] = []
    original = jax_arrays.array

    def watched(buffer: Any, kind: Any, like: Any) -> Any:
        buffers.append(buffer)
        return original(buffer, kind, like)

    monkeypatch.setattr(jax_arrays, "array", watched)
    for dtype in FLOATS:
        y = bc.exp(jnp.zeros(shape, dtype))
        assert isinstance(y, jax.Array) and y.shape == shape and bool((y == 1).all())
        if 0 not in shape:
            assert y.unsafe_buffer_pointer() == buffers[-1].ctypes.data


@pytest.mark.parametrize("kind", [k for k in ElementKind if k.bits >= 8 and k.itemsize < 8])
def test_every_element_goes_both_ways(kind: ElementKind) -> None:
    like = jnp.zeros(2)
    buffer = jax_arrays.empty((2, 3), kind)
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind.dtype)
    buffer[...] = values.view(kind.carrier)
    array = jax_arrays.array(buffer, kind, like)
    assert array.dtype == kind.dtype and array.unsafe_buffer_pointer() == buffer.ctypes.data
    np.testing.assert_array_equal(np.asarray(array).astype(np.float64), values.astype(np.float64))
    back = read(array)
    assert (back.element, back.shape, back.strides, back.readonly) == (kind, (2, 3), (3, 1), True)
    memory = jax_arrays.locate(array, None)  # what a device array is read by
    assert (memory.ptr, memory.strides or (3, 1)) == (array.unsafe_buffer_pointer(), (3, 1))


@pytest.mark.parametrize("kind", [ElementKind.FP8E4M3, ElementKind.FP8E5M2])
def test_fp8_operands(kind: ElementKind) -> None:
    plan, found = bc.BatchPagedDecodeFp8Plan, 0
    for seed in range(12):
        case = make_case(plan, SeededDraw(seed, ElementKind.F16))
        if case.desc.aux_element is not kind:
            continue
        chosen = plan.select(case.desc, device="cpu")
        results = []
        for wrap in (lambda a: a, lambda a: jnp.asarray(a.view(kind.dtype) if a.dtype == np.uint8 else a)):
            given = {n: wrap(a) if isinstance(a, np.ndarray) else a for n, a in case.arrays.items()}
            y = np.zeros(next(s for s in arrays_of(plan.args) if s.name == "y").shape(case.desc), np.float16)
            chosen(**given, y=y)
            results.append(y)
        assert given["k_cache"].dtype == kind.dtype and np.array_equal(*results)
        found += bool(results[0].any())
    assert found


def test_results_go_on_in_jax() -> None:
    x = made(4, 4)
    y = jax.jit(lambda a: (a * 2).sum())(bc.exp(x))
    np.testing.assert_allclose(float(y), 2 * np.exp(wide(x)).sum(), rtol=1e-6)
    kept = [bc.exp(x) for _ in range(50)]
    assert all(np.array_equal(a, kept[0]) for a in kept)  # nobody reuses a buffer behind an array


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transformed",
    [
        lambda x: jax.jit(bc.exp)(x),
        lambda x: jax.vmap(bc.exp)(x),
        lambda x: jax.grad(lambda a: bc.exp(a).sum())(x),
        lambda x: jax.jit(lambda a: bc.rms_norm(x, weight=a[0]))(x),
        lambda x: jax.jit(lambda a: bc.affine(x, alpha=a[0, 0]))(x),
        lambda x: jax.jit(lambda a: bc.flash_sdpa(a, a, a, layout="bshd"))(x[None, None]),
        lambda x: jax.jit(lambda a: bc.sub(a, 2))(x),
        lambda x: jax.jit(lambda a: bc.cdist(a, x))(x),
    ],
    ids=["jit", "vmap", "grad", "another operand", "scalar", "layout", "number", "composed"],
)
def test_traced_arrays_go_on_in_jax(transformed: Any) -> None:
    """The functions become part of JAX's program; `test_jax_bridge` has the rest. Twice: with and without an entry."""
    x = made(4, 4)
    for _ in range(2):
        assert isinstance(transformed(x), jax.Array)
    bc.affine(x, alpha=2.0)
    assert isinstance(jax.jit(lambda a: bc.affine(x, alpha=a[0, 0]))(x), jax.Array)


def test_plans_refuse_traced_arrays() -> None:
    plan = bc.AffinePlan.select(bc.AffineDescriptor(shape=(4,), element="float32"), device="cpu")
    with pytest.raises(bc.UnsupportedError, match=r"x is traced by a JAX transformation .*baracuda_py\.jax take it"):
        jax.jit(lambda a: plan(x=a, y=np.empty(4, np.float32)))(made(4))
    with pytest.raises(bc.UnsupportedError, match=r"alpha is traced by"):
        jax.jit(lambda a: plan(x=np.ones(4, np.float32), y=np.empty(4, np.float32), alpha=a[0]))(made(4))


def test_pure_callback_is_a_way() -> None:
    x = made(4, 4)

    @jax.jit
    def function(a: Any) -> Any:
        return jax.pure_callback(lambda b: np.asarray(bc.exp(np.asarray(b))), jax.ShapeDtypeStruct(a.shape, a.dtype), a)

    np.testing.assert_allclose(function(x), jnp.exp(x), rtol=1e-6)


def test_in_place_operations_are_told_what_to_do() -> None:
    p, g, m, v = (made(4, seed=i) for i in range(4))
    before = np.asarray(p).copy()
    with pytest.raises(bc.InvalidProblemError, match=r"params\[0\] would be written, and JAX arrays are immutable"):
        bc.adam_step([p], [g], [m], [v], step=1)
    assert np.array_equal(p, before)
    params, first, second = np.array(p), np.zeros(4, np.float32), np.zeros(4, np.float32)
    bc.adam_step([params], [g], [first], [second], step=1)  # gradients may be JAX's
    assert not np.array_equal(params, before)
    cache = jnp.zeros((1, 2, 8, 4))
    new = made(1, 2, 1, 4)
    with pytest.raises(bc.InvalidProblemError, match=r"k_cache would be written, and JAX arrays are immutable"):
        bc.kv_cache_append(new, new, jnp.zeros(1, jnp.int32), cache, cache)


def test_deleted_arrays_are_refused_by_name() -> None:
    x = made(4)
    x.delete()
    with pytest.raises(bc.InvalidProblemError, match=r"x: .*deleted"):
        bc.exp(x)


# -- with a GPU -----------------------------------------------------------------------------------------------------


def device() -> Any:
    found = [d for d in jax.devices() if d.platform in ("gpu", "cuda")]
    if not found:
        pytest.skip("this JAX has no CUDA backend")
    return found[0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gpu_takes_and_returns_jax_arrays(dtype: str) -> None:
    x = jax.device_put(made(64, 256, dtype=dtype), device())
    weight = jax.device_put(made(256, dtype=dtype, seed=1), device())
    for _ in range(3):
        y, rstd = bc.rms_norm(x, weight, return_rstd=True)
        assert isinstance(y, jax.Array) and y.dtype == x.dtype
        assert y.devices() == rstd.devices() == x.devices() == {device()}
        want = wide(x) / np.sqrt(np.mean(wide(x) ** 2, -1, keepdims=True) + 1e-6) * wide(weight)
        np.testing.assert_allclose(wide(y), want, rtol=4 * float(jnp.finfo(dtype).eps), atol=1e-6)
        np.testing.assert_allclose(wide(jax.jit(lambda a: a + a)(y)), 2 * wide(y), rtol=1e-2)


@pytest.mark.gpu
def test_a_gpu_waits_for_xla_and_xla_for_us() -> None:
    import cupy

    a = jax.device_put(made(2048, 2048), device())
    heavy = jax.jit(lambda m: jax.lax.fori_loop(0, 20, lambda i, b: jnp.tanh(b @ m * 0.01), m))
    want = np.exp(wide(heavy(a)))
    for stream in (None, cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)):
        y = bc.exp(heavy(a), stream=stream)  # neither side is waited for by the host
        np.testing.assert_allclose(wide(y + 0), want, rtol=1e-5)


@pytest.mark.gpu
def test_a_gpu_takes_fp8_and_both_layouts() -> None:
    values = jax.device_put(jnp.asarray(np.arange(6), jnp.float8_e4m3fn), device())
    view = read(values)
    assert (view.element, view.device, view.shape) == (ElementKind.FP8E4M3, 0, (6,))
    assert view.ptr == values.unsafe_buffer_pointer() and view.readonly
    q = jax.device_put(made(1, 32, 2, 64, dtype="bfloat16"), device())
    y = bc.flash_sdpa(q, q, q, layout="bshd")
    other = bc.flash_sdpa(*(jnp.swapaxes(q, 1, 2),) * 3)
    assert isinstance(y, jax.Array) and np.array_equal(wide(y).swapaxes(1, 2), wide(other))
    with pytest.raises(bc.InvalidProblemError, match="JAX arrays are immutable"):
        bc.exp(q, out=q)
