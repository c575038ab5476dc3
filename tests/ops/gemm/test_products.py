"""Products between a plan's kernels: what cuBLAS is told about each operand, computed on host memory instead."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends.cublas import GemmProblem, Matrix
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View
from baracuda_py.core.variant import LibraryStep, Problem, Step
from baracuda_py.ops.attention.dense.sdpa import SdpaArgs, SdpaDescriptor
from baracuda_py.schedules import products
from baracuda_py.schedules.products import Heads, Place, Products

H200 = fake_device(9.0)
NAMES = ("q", "k", "v", "mask", "y", "attn", "scores", "lse")


def view_of(array: np.ndarray) -> View:
    strides = tuple(s // array.itemsize for s in array.strides)
    return View(array.ctypes.data, array.shape, strides, ElementKind.of(array.dtype))


class HostGemm:
    """A prepared product that runs at once, in float64, on the memory it is given."""

    def __init__(self, problem: GemmProblem, device: Any) -> None:
        self.problem = problem

    def matrices(self, pointer: int, m: Matrix, shape: tuple[int, int]) -> np.ndarray:
        dtype = np.dtype(m.element)
        assert pointer % m.alignment == 0
        strides = (m.batch_stride, 1, m.ld) if m.trans else (m.batch_stride, m.ld, 1)
        memory = (ctypes.c_byte * (1 << 24)).from_address(pointer)
        return np.ndarray((self.problem.batch, *shape), dtype, memory, 0, tuple(s * dtype.itemsize for s in strides))

    def run(self, a: int, b: int, c: int, d: int, alpha: float, beta: float, *rest: int) -> None:
        p = self.problem
        left, right = self.matrices(a, p.a, p.shape("a")), self.matrices(b, p.b, p.shape("b"))
        to = self.matrices(d, p.d, p.shape("d"))
        to[...] = alpha * (left.astype(float) @ right.astype(float)) + (beta * to if beta else 0)


def plan(arrays: dict[str, np.ndarray], kv_heads: int, element: str, library: bool = True) -> Products:
    batch, heads, queries, d_k = arrays["q"].shape
    desc = SdpaDescriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, query_len=queries, key_len=arrays["k"].shape[2],
        d_k=d_k, d_v=arrays["v"].shape[3], element=element,
    )  # fmt: skip
    views = {name: view_of(arrays[name]) if name in arrays else None for name in NAMES}
    return Products(Problem(desc, H200, views), SdpaArgs, library=library)


def run(made: Products, arrays: dict[str, np.ndarray]) -> None:
    pointers = tuple(arrays[name].ctypes.data if name in arrays else 0 for name in NAMES)
    for step in made.steps:
        assert isinstance(step, LibraryStep)
        step.prepare(H200)(pointers, ((0, 0), (0, 0)), 0, 0, 0)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each product that is run; products run on the host."""
    lengths: list[int] = []

    class Counted(HostGemm):
        def run(self, *args: Any) -> None:
            lengths.append(self.problem.k)
            super().run(*args)

    monkeypatch.setattr(products.cublas, "prepare", Counted)
    return lengths


def make(kv_heads: int, queries: int, keys: int, dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "q": (2, 4, queries, 8), "k": (2, kv_heads, keys, 8), "v": (2, kv_heads, keys, 6), "y": (2, 4, queries, 6),
        "attn": (2, 4, queries, keys),
    }  # fmt: skip
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("keys", [5, 1023, 1024, 1025, 3000])
def test_products_of_every_length(keys: int, kv_heads: int, dtype: str, sums: list[int]) -> None:
    arrays = make(kv_heads, 3, keys, dtype)
    made = plan(arrays, kv_heads, dtype)
    made.product(made.read("attn"), made.read("v"), made.read("y"), 0.5)
    run(made, arrays)
    want = 0.5 * arrays["attn"].astype(float) @ np.repeat(arrays["v"].astype(float), 4 // kv_heads, axis=1)
    np.testing.assert_allclose(arrays["y"], want, rtol=2e-3 if dtype == "float16" else 1e-4, atol=1e-2)


@pytest.mark.parametrize(("dtype", "pieces"), [("float32", [1024, 1024, 952]), ("float16", [3000])])
def test_long_float32_sums_are_made_of_pieces(dtype: str, pieces: list[int], sums: list[int]) -> None:
    arrays = make(4, 3, 3000, dtype)
    made = plan(arrays, 4, dtype)
    made.product(made.read("attn"), made.read("v"), made.read("y"))
    run(made, arrays)
    assert sums == pieces


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_transposed_stacks_sum_over_a_group(kv_heads: int, sums: list[int]) -> None:
    """As dv = attnᵀ dy: rows of all query heads of a key head, one below the other."""
    arrays = make(kv_heads, 3, 5, "float64")
    made = plan(arrays, kv_heads, "float64")
    made.product(made.read("attn").t, made.read("y"), made.read("v"))
    run(made, arrays)
    each = arrays["attn"].swapaxes(-1, -2) @ arrays["y"]
    np.testing.assert_allclose(arrays["v"], each.reshape(2, kv_heads, 4 // kv_heads, 5, 6).sum(2), rtol=1e-12)


LAYOUTS = {
    "dense": lambda a: a,
    "padded rows": lambda a: np.zeros((*a.shape[:3], a.shape[3] + 3))[..., : a.shape[3]],
    "every other batch": lambda a: np.zeros((2 * a.shape[0], *a.shape[1:]))[::2],
    "heads last": lambda a: np.zeros((a.shape[0], a.shape[2], a.shape[1], a.shape[3])).swapaxes(1, 2),
    "heads reversed": lambda a: np.zeros(a.shape)[:, ::-1],
    "one for all heads": lambda a: np.broadcast_to(np.zeros((a.shape[0], 1, *a.shape[2:])), a.shape),
    "one for all": lambda a: np.broadcast_to(np.zeros((1, 1, *a.shape[2:])), a.shape),
    "overlapping rows": lambda a: np.lib.stride_tricks.as_strided(np.zeros(64), a.shape, (64, 64, 8, 8)),
}


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stack_addresses_what_the_view_does_or_is_none(layout: str, group: int) -> None:
    array = LAYOUTS[layout](np.empty((2, 4, 3, 5)))
    view = view_of(array)
    stack = Heads(Place("q"), view).stack(4 // group)
    even = {"dense", "padded rows"} | ({"every other batch"} if group == 4 else set())
    even |= {"one for all"} if group == 1 else set()
    assert (stack is not None) == (layout in even)
    if stack is None:
        return
    assert (stack.count, stack.rows, stack.cols) == (8 // group, 3 * group, 5)
    for b, h, r in np.ndindex(2, 4, 3):
        wanted = sum(i * s for i, s in zip((b, h, r), view.strides, strict=False))
        place = (b * (4 // group) + h // group) * stack.step + (h % group * 3 + r) * stack.ld
        assert place == wanted


def test_without_cublas_the_same_stacks_go_to_the_kernel() -> None:
    arrays = make(2, 3, 5, "float32")
    made = plan(arrays, 2, "float32", library=False)
    made.product(made.read("q"), made.read("k").t, made.read("attn"), 0.25)
    (step,) = made.steps
    assert isinstance(step, Step)
    assert step.grid == (4, 1, 1)
    expected = {"m": 6, "n": 5, "k": 8, "batch": (48, 40, 30), "alpha": 0.25, "a": "q", "b": "k", "y": "attn"}
    assert {name: step.params[name] for name in expected} == expected
    assert step.params["strides"] == [(8, 1), (1, 8), (0, 0), (5, 1)]
    assert made.geometry("").workspace == 0


def test_the_workspace_holds_pieces_and_the_library_s_own() -> None:
    arrays = make(2, 3, 5, "float16")
    made = plan(arrays, 2, "float16")
    first, second = made.reserve(1), made.hold(4, 3, 5)
    assert (first.offset, second.place.offset) == (0, 256)
    assert second.view.strides == (96, 24, 8, 1)
    assert second.wide
    made.product(made.read("q"), made.read("k").t, made.even(second))
    assert made.geometry("").workspace == 256 + 512 + 64 * 120
