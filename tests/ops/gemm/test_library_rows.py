"""What cuBLAS's rows with an epilogue, and of fp8, take, and why they refuse the rest; results on a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends import library as backends_library
from baracuda_py.core import PlanPreference, registry
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import Device, fake_device
from baracuda_py.core.dispatch import dense_problem, fit
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.core.variant import Problem
from baracuda_py.ops.gemm import library

HOPPER, ADA = fake_device(9.0), fake_device(8.9)
HALF = {"m": 32, "n": 64, "k": 48, "element": "bfloat16"}
HEADS = {"batch_size": 1, "num_heads": 2, "query_len": 4, "key_len": 4, "d_k": 8, "d_v": 8, "element": "float32"}
FP8 = {"m": 32, "n": 64, "k": 48, "element": "float8_e4m3fn"}


def said(plan: Any, row: str, desc: Any, device: Device = HOPPER, **placed: Any) -> Any:
    """What the row makes of operands; placed: their strides, or a pointer and those. b has k along memory."""
    views: dict[str, View | None] = {}
    for spec in arrays_of(plan.args):
        views[spec.name] = None
        if spec.name in ("a", "b", "y") or spec.name in placed:
            shape = spec.shape(desc)
            given = placed.get(spec.name) or ((1, desc.k) if spec.name == "b" else dense_strides(shape))
            ptr, strides = given if given and isinstance(given[0], int) and isinstance(given[-1], tuple) else (0, given)
            views[spec.name] = View(ptr, shape, strides, spec.elements(desc)[0])
    variant = next(v for v in plan.variants if v.name == row)
    why = variant.refuses(desc) if variant.refuses else None
    return why or variant.geometry(Problem(desc, device, views))


def product(**change: Any) -> Any:
    return bc.GemmDescriptor(**(HALF | change))


def fp8(**change: Any) -> Any:
    return bc.Fp8GemmDescriptor(**(FP8 | change))


@pytest.mark.parametrize(
    ("desc", "placed"),
    [
        (product(), {"bias": (1,)}), (product(activation="relu"), {}),
        (product(activation="gelu_tanh"), {"bias": (1,)}),
        (product(activation="relu", element="float32"), {"bias": (1,), "c": (64, 1)}),
    ],
)  # fmt: skip
def test_epilogues_that_cublas_has(desc: Any, placed: Any) -> None:
    assert not isinstance(said(bc.GemmPlan, "cublas_epilogue", desc, **placed), str)


@pytest.mark.parametrize(
    ("desc", "placed", "why"),
    [
        (product(), {}, "neither a bias nor an activation"),
        (product(activation="gelu"), {"bias": (1,)}, "cuBLAS has no activation gelu"),
        (product(activation="gelu_tanh", element="float32"), {}, "too coarsely for float32"),
        (product(out_element="float32"), {"bias": (1,)}, "adds a bias of y's element, float32, not of bfloat16"),
        (product(), {"bias": (2,)}, "needs a dense bias .*, got stride 2"),
        (product(), {"bias": (8, (1,))}, "at a multiple of 16 bytes"),
        (product(batch_shape=(2,)), {"bias": (1,), "b": (0, 1, 48)}, "adds a bias to one product"),
        (product(), {"bias": (1,), "y": (1, 32)}, "to the columns of a row-major y"),
        (product(activation="relu"), {"residual": (64, 1)}, "cuBLAS has no residual"),
        (product(activation="relu", element="float64"), {}, None),
    ],
)  # fmt: skip
def test_epilogues_that_it_has_not(desc: Any, placed: Any, why: str | None) -> None:
    if why is None:
        (row,) = (v for v in bc.GemmPlan.variants if v.name == "cublas_epilogue")
        assert not row.serves(None, desc.element)
    else:
        found = said(bc.GemmPlan, "cublas_epilogue", desc, **placed)
        assert isinstance(found, str)
        assert re.search(why, found), found


@pytest.mark.parametrize(("cc", "ours"), [(8.0, "mma"), (9.0, "wgmma")])
@pytest.mark.parametrize("extents", [{}, {"m": 4096, "n": 4096, "k": 4096}])
def test_a_product_for_every_batch_is_no_library_s(extents: dict[str, int], cc: float, ours: str) -> None:
    """Any other, with an epilogue that cuBLAS has, is: of squares too, whose bare products are ours."""
    desc, invariant = product(activation="gelu_tanh", **extents), bc.PlanPreference(batch_invariant=True)
    assert bc.GemmPlan.select(desc, device=fake_device(cc)).sku.variant == "cublas_epilogue"
    assert bc.GemmPlan.select(desc, invariant, device=fake_device(cc)).sku.variant.startswith(ours)
    exact = product(activation="gelu", **extents)
    assert bc.GemmPlan.select(exact, device=fake_device(cc)).sku.variant.startswith(ours)


ROWS = {"a_scales": (32, 1), "b_scales": (1, 64)}


@pytest.mark.parametrize(
    ("desc", "placed", "device"),
    [
        (fp8(), {}, ADA), (fp8(), {"scale_a": (1, 1), "bias": (1,), "c": (64, 1)}, HOPPER),
        (fp8(out_element="float8_e4m3fn"), {"scale_a": (1, 1), "scale_b": (1, 1), "scale_y": ()}, ADA),
        (fp8(b_element="float8_e5m2", out_element="float32"), {}, ADA), (fp8(**ROWS), {}, ADA),
        (fp8(**ROWS), {"scale_a": (1, 1), "scale_b": (64, 1)}, HOPPER),
    ],
)  # fmt: skip
def test_fp8_that_cublas_has(desc: Any, placed: Any, device: Device) -> None:
    assert not isinstance(said(bc.Fp8GemmPlan, "cublas", desc, device, **placed), str)


@pytest.mark.parametrize(
    ("desc", "placed", "device", "why"),
    [
        (fp8(), {}, fake_device(8.0), "on devices from 8.9 on"),
        (fp8(element="float8_e5m2"), {}, ADA, "no product of float8_e5m2 by itself"),
        (fp8(out_element="float8_e5m2"), {}, ADA, "no float8_e5m2 result of float8_e4m3fn"),
        (fp8(activation="relu"), {}, ADA, "no activation relu of fp8"),
        (fp8(k=40), {}, ADA, "multiples of 16 as k and n, got 40 and 64"),
        (fp8(a_scales=(32, 1)), {}, HOPPER, r"scales of both matrices, .* got \(32, 1\) and \(1, 1\)"),
        (fp8(**ROWS), {"scale_a": (1, 1)}, HOPPER, "rows and columns, or neither"),
        (fp8(**ROWS), {"scale_a": (1, 1), "scale_b": (64, 1)}, ADA, "rows and columns on devices of 9.0"),
        (fp8(**ROWS), {"scale_a": (2, 1), "scale_b": (64, 1)}, HOPPER, "needs dense scales, got scale_a"),
        (
            fp8(out_element="float8_e4m3fn", **ROWS), {"scale_a": (1, 1), "scale_b": (64, 1)}, HOPPER,
            "scales rows and columns of results of 16 and 32 bits, not float8_e4m3fn",
        ),
        (fp8(), {"b": (64, 1)}, HOPPER, "needs b with k along memory"),
        (fp8(), {"a": (56, 1)}, HOPPER, "needs a with k along memory, each at a multiple of 16 bytes"),
        (fp8(), {"residual": (64, 1)}, HOPPER, "has no residual of fp8"),
        (fp8(), {"amax": ()}, HOPPER, "has no amax of fp8"),
        (fp8(), {"scale_y": ()}, HOPPER, "scales y where it is fp8, not bfloat16"),
        (fp8(out_element="float32"), {"bias": (1,)}, HOPPER, "adds no bias to float32 of fp8"),
        (fp8(out_element="float8_e4m3fn"), {"c": (64, 1)}, HOPPER, "adds no c to float8_e4m3fn"),
    ],
)  # fmt: skip
def test_fp8_that_it_has_not(desc: Any, placed: Any, device: Device, why: str) -> None:
    found = said(bc.Fp8GemmPlan, "cublas", desc, device, **placed)
    assert isinstance(found, str)
    assert re.search(why, found), found


def test_rows_of_libraries_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, whichever row they call the library by."""
    monkeypatch.setattr(backends_library, "_search", lambda name, *of: f"{name} was not found; pip install …")
    rows = [
        (plan.op, row) for plan in registry.plans().values() for row in plan.variants if row.backend.is_library
    ]  # fmt: skip
    silent = [f"{op}: {row.name}" for op, row in rows if not row.missing or "was not found" not in row.missing()]
    assert len(rows) > 20 and not silent


@pytest.mark.parametrize(
    ("plan", "desc"), [(bc.GemmPlan, product()), (bc.SdpaPlan, bc.SdpaDescriptor(**HEADS))]
)  # fmt: skip
def test_without_the_library(monkeypatch: pytest.MonkeyPatch, plan: Any, desc: Any) -> None:
    """A real device is refused in words that say what to install; a fake one answers all the same."""
    monkeypatch.setattr(backends_library, "_search", lambda name, *of: f"{name} was not found; pip install …")
    (variant,) = [one for one in plan.variants if one.name == "cublas"]
    found = [
        fit(variant, dense_problem(plan, desc, device), PlanPreference())
        for device in (HOPPER, replace(HOPPER, fake=False))
    ]
    assert not isinstance(found[0], str) and found[1] == "cublasLt was not found; pip install …"


def test_the_version_of_a_library_that_is_missing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends_library, "_search", lambda name, *of: f"{name} was not found; pip install …")
    scales: dict[str, Any] = {"scale_a": (1, 1), "scale_b": (64, 1)}
    assert not isinstance(said(bc.Fp8GemmPlan, "cublas", fp8(**ROWS), replace(HOPPER, fake=False), **scales), str)


def test_a_layout_that_is_refused_asks_for_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends_library, "_search", lambda *of: pytest.fail("the library was searched"))
    desc = product(n=0)
    (row,) = [one for one in bc.GemmPlan.variants if one.name == "cublas"]
    found = fit(row, dense_problem(bc.GemmPlan, desc, replace(HOPPER, fake=False)), PlanPreference())
    assert found == "cuBLAS takes no empty extents"


@pytest.mark.parametrize("out", ["bfloat16", "float8_e4m3fn"])
def test_an_alpha_on_the_device_has_zeros_beside_it(monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    """A beta, and for an fp8 y, which no c may be, a c of 16 bits; the workspace has room for them."""
    told: list[Any] = []

    class Told:
        def __init__(self, problem: Any, device: Device) -> None:
            self.device_scalars = problem.device_scalars

        def run(self, *call: Any) -> None:
            told.append((self.device_scalars, *call))

    monkeypatch.setattr(library.cublas, "prepare", Told)
    monkeypatch.setattr(library, "_clear", lambda *call: told.append(call))
    geometry = said(bc.Fp8GemmPlan, "cublas", fp8(out_element=out))
    spare = 256 + (32 * 64 * 2 if out == "float8_e4m3fn" else 0)
    assert geometry.workspace == (32 << 20) + spare
    (step,) = geometry.steps
    places = {name: 4096 * (n + 1) if name in "aby" else 0 for n, name in enumerate(arrays_of_fp8())}
    call, start = step.prepare(HOPPER), 1 << 20
    call(tuple(places.values()), ((0, 0.5), (0, 1.0)), start, geometry.workspace, 7)
    call(tuple(places.values()), ((640, 0.0), (0, 1.0)), start, geometry.workspace, 7)
    a, b, y = (places[name] for name in "aby")
    rest = (start + spare, 32 << 20, 7, [])
    assert told == [
        (False, a, b, 0, y, 0.5, 0.0, *rest),
        (start, spare, 7),
        (True, a, b, start + 256 if out == "float8_e4m3fn" else 0, y, 640, start, *rest),
    ]


def arrays_of_fp8() -> list[str]:
    return [spec.name for spec in arrays_of(bc.Fp8GemmPlan.args)]


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["none", "relu", "gelu_tanh"])
@pytest.mark.parametrize(("m", "alpha"), [(1, 1.0), (100, 0.5), (64, 0.0)])
def test_epilogues_on_a_gpu(activation: str, m: int, alpha: float) -> None:
    cp = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    a, w, bias = (cp.asarray(rng.standard_normal(s).astype(np.float16)) for s in ((m, 256), (64, 256), (64,)))
    preference = bc.PlanPreference(prefer_backend="cublas")
    got = bc.gemm(a, w.T, bias=bias, alpha=alpha, activation=activation, preference=preference)
    want = bc.gemm(a.get(), w.get().T, bias=bias.get(), alpha=alpha, activation=activation)
    np.testing.assert_allclose(got.get(), want, rtol=2e-3, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("scales", ["none", "tensor", "rows"])
@pytest.mark.parametrize(("out", "m"), [("bfloat16", 1), ("float16", 100), ("float8_e4m3fn", 64)])
def test_fp8_on_a_gpu(out: str, m: int, scales: str) -> None:
    cp = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    a, w = (bc.cast(rng.standard_normal(s).astype(np.float32), "float8_e4m3fn") for s in ((m, 256), (64, 256)))
    shapes = {"none": None, "tensor": ((1, 1), (1, 1)), "rows": ((m, 1), (1, 64))}[scales]
    given: dict[str, Any] = {}
    if shapes is not None:
        given |= {f"scale_{n}": rng.random(s, np.float32) + 0.5 for n, s in zip("ab", shapes, strict=True)}
    if out == "float8_e4m3fn":
        given["scale_y"] = np.array(0.25, np.float32)
    desc = bc.Fp8GemmDescriptor(
        m=m, n=64, k=256, element="float8_e4m3fn", out_element=out,
        **({} if shapes is None else {"a_scales": shapes[0], "b_scales": shapes[1]}),
    )  # fmt: skip
    y = np.empty((m, 64), desc.out_element.carrier)
    bc.Fp8GemmPlan.select(desc, device="cpu")(a=a, b=w.T, y=y, **given)
    left = out == "float8_e4m3fn" and scales == "rows"  # to the next row
    plan = bc.Fp8GemmPlan.select(desc, None if left else bc.PlanPreference(prefer_backend="cublas"))
    on_device = {name: cp.asarray(x) for name, x in given.items()}
    on_device |= {"a": cp.asarray(a), "b": cp.asarray(w).T}
    got = cp.empty((m, 64), desc.out_element.carrier)
    verdict = plan.can_implement(bc.Fp8GemmArgs(y=got, **on_device))
    assert verdict and verdict.sku is not None and (verdict.sku.variant == "cublas") is not left
    plan(y=got, **on_device)
    from baracuda_py.core.element import decode

    found, truth = (decode(np.asarray(x), desc.out_element).astype(np.float64) for x in (got.get(), y))
    np.testing.assert_allclose(found, truth, rtol=0.13 if out[5] == "8" else 1e-2, atol=0.05)
