"""gemm_backward: known values, options in pairs against torch, what is launched, what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import Problem
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.core.tensor import TensorRef, View, dense_strides
from baracuda_py.core.variant import LibraryStep
from baracuda_py.testing.places import call

H200 = fake_device(9.0)
SIMT = PlanPreference(prefer_backend=BackendKind.BESPOKE)
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
GRADS = ("da", "db", "dup", "dc", "dbias", "dup_bias", "drow_bias", "dresidual")


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def gradients(*wanted: str, **given: Any) -> Any:
    """Those wanted, by the functional layer."""
    return bc.gemm_backward(**given, **{f"return_{name}": name in wanted for name in GRADS})


def test_a_plain_product() -> None:
    a, b, dy = integers(2, 3), integers(3, 4, seed=1), integers(2, 4, seed=2)
    da, db, dc, dbias = gradients("da", "db", "dc", "dbias", dy=dy, a=a, b=b, alpha=2.0, beta=-3.0)
    assert np.array_equal(da, 2 * dy @ b.T) and np.array_equal(db, 2 * a.T @ dy)
    assert np.array_equal(dc, -3 * dy) and np.array_equal(dbias, dy.sum(0))


def test_relu_of_known_numbers() -> None:
    """Where pre is 0 the slope is 0, as in PyTorch; NaN in dy stays where the slope is 1."""
    dy, pre = np.array([[1.0, 2.0, np.nan, 4.0]]), np.array([[-1.0, 0.0, 2.0, 3.0]])
    dbias = gradients("dbias", dy=dy, a=np.ones((1, 1)), b=np.ones((1, 4)), pre=pre, activation="relu")
    assert np.array_equal(dbias, [0, 0, np.nan, 4], equal_nan=True)


def test_a_gate_of_known_numbers() -> None:
    """relu: y = max(x, 0) u with x = 3 and -1: g = dy u or 0, h = dy x or 0."""
    a, b, up = np.array([[1.0]]), np.array([[3.0, -1.0]]), np.array([[5.0, 7.0]])
    given = {"dy": np.array([[2.0, 2.0]]), "a": a, "b": b, "up": up, "pre": a @ b, "up_pre": a @ up}
    da, db, dup, dup_bias = gradients("da", "db", "dup", "dup_bias", activation="relu", **given)
    assert np.array_equal(db, [[10, 0]]) and np.array_equal(dup, [[6, 0]]) and np.array_equal(dup_bias, [6, 0])
    assert np.array_equal(da, [[10 * 3 + 6 * 5]])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("gated", [False, True])
def test_zero_scalars_leave_operands_out(place: str, name: str, gated: bool) -> None:
    """alpha = 0: a, b and up full of NaN give gradients of 0; beta = 0: so does a dy of NaN for c."""
    kind = ElementKind.of(name)
    bad = {n: np.full(s, np.nan).astype(kind.dtype) for n, s in (("a", (5, 4)), ("b", (4, 6)), ("dy", (5, 6)))}
    bad |= {"pre": bad["dy"]} | ({"up": bad["b"], "up_pre": bad["dy"]} if gated else {})
    desc = bc.GemmBackwardDescriptor(m=5, n=6, k=4, activation="silu", element=kind)
    wanted = ("da", "db", "dc", "dup") if gated else ("da", "db", "dc")
    got = call(bc.GemmBackwardPlan, desc, wanted, place, SIMT, alpha=0.0, beta=0.0, **bad)
    assert all(np.array_equal(x, np.zeros_like(x)) for x in got.values())


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_infinities_and_nan_reach_what_they_belong_to(place: str, activation: str) -> None:
    """Of dy: its row of da, its column of db and dbias, and with relu none of them where pre is below 0."""
    dy, pre = np.ones((4, 6)), np.ones((4, 6))
    dy[1, 2], dy[3, 5], pre[3, 5] = np.inf, np.nan, -1.0
    given = {"dy": dy, "a": np.ones((4, 3)), "b": np.ones((6, 3)).T} | ({"pre": pre} if activation == "relu" else {})
    desc = bc.GemmBackwardDescriptor(m=4, n=6, k=3, activation=activation, element="float32")
    got = call(bc.GemmBackwardPlan, desc, ("da", "db", "dbias", "drow_bias"), place, SIMT, **given)
    g = np.where(pre > 0, dy, 0) if activation == "relu" else dy
    assert np.array_equal(got["da"], np.repeat(g.sum(1)[:, None], 3, 1), equal_nan=True)
    assert np.array_equal(got["db"], np.repeat(g.sum(0)[None], 3, 0), equal_nan=True)
    assert np.array_equal(got["dbias"], g.sum(0), equal_nan=True)
    assert np.array_equal(got["drow_bias"], g.sum(1), equal_nan=True)


OPTIONS: dict[str, tuple[Any, ...]] = {
    "activation": ACTIVATIONS, "gated": (False, True), "scales": ("", "a", "b", "ab"), "batch": ((), (3,), (2, 2)),
    "element": ("float64", "float32", "bfloat16"), "wide": (False, True), "turned": (False, True), "n": (1, 9, 64),
}  # fmt: skip


def pairs() -> list[dict[str, Any]]:
    """Every pair of values of two options at least once, by taking the row that covers most of those left."""
    names, rng = list(OPTIONS), np.random.default_rng(0)
    left = {
        (x, i, y, j)
        for x, y in itertools.combinations(names, 2)
        for i in range(len(OPTIONS[x]))
        for j in range(len(OPTIONS[y]))
    }
    rows = []
    while left:
        tries = [{n: int(rng.integers(len(OPTIONS[n]))) for n in names} for _ in range(50)]
        covered = [{(x, t[x], y, t[y]) for x, y in itertools.combinations(names, 2)} for t in tries]
        best = max(range(50), key=lambda i: len(covered[i] & left))
        left -= covered[best]
        rows.append({n: OPTIONS[n][tries[best][n]] for n in names})
    return rows


@pytest.mark.parametrize("row", pairs(), ids=lambda row: "-".join(str(v).replace(" ", "") for v in row.values()))
def test_options_in_pairs_against_torch(place: str, row: dict[str, Any]) -> None:
    """All gradients at once; what torch differentiates starts from the pre-activations, as they were saved."""
    torch = pytest.importorskip("torch")
    kind, m, n, k = ElementKind.of(row["element"]), 7, row["n"], 5
    out = kind.acc if row["wide"] else kind
    rng = np.random.default_rng(sum(map(ord, str(row))))
    batch = row["batch"]

    def made(*shape: int, element: ElementKind = kind) -> np.ndarray:
        return rng.standard_normal(shape).astype(element.dtype)

    def turned(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if row["turned"] else x

    given = {"a": turned(made(*batch, m, k)), "b": turned(made(*batch, k, n)), "dy": made(*batch, m, n, element=out)}
    if row["gated"]:
        given |= {"up": turned(made(*batch, k, n)), "up_pre": made(*batch, m, n, element=out)}
    if row["gated"] or row["activation"] != "none":
        given["pre"] = turned(made(*batch, m, n, element=out))
    for name, extent in (("a", m), ("b", n)):
        if name in row["scales"]:
            given[f"scale_{name}"] = made(extent, element=ElementKind.F32)
    wanted = tuple(g for g in GRADS if row["gated"] or "up" not in g)
    desc = bc.GemmBackwardDescriptor(
        batch_shape=batch, m=m, n=n, k=k, activation=row["activation"], element=kind, out_element=out
    )
    got = call(bc.GemmBackwardPlan, desc, wanted, place, SIMT, alpha=0.5, beta=-2.0, **given)

    x = {name: torch.from_numpy(np.array(value, np.float64)) for name, value in given.items()}
    act = {"none": lambda v: v, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
           "gelu_tanh": lambda v: torch.nn.functional.gelu(v, approximate="tanh")}[row["activation"]]  # fmt: skip
    scale = x.get("scale_a", torch.ones(m))[:, None].double() * x.get("scale_b", torch.ones(n)).double()
    leaves = {name: x[name].clone().requires_grad_() for name in ("a", "b", "up") if name in x}
    zeros = {"c": (*batch, m, n), "bias": (n,), "up_bias": (n,), "row_bias": (m,), "residual": (*batch, m, n)}
    leaves |= {name: torch.zeros(s, dtype=torch.float64, requires_grad=True) for name, s in zeros.items()}

    def held(product: Any, value: Any) -> Any:  # the product, with the value that was saved
        return product + (value - product).detach() if value is not None else product

    first = 0.5 * (leaves["a"] @ leaves["b"]) * scale - 2.0 * leaves["c"] + leaves["bias"] + leaves["row_bias"][:, None]
    y = act(held(first, x.get("pre")))
    if row["gated"]:
        y = y * held(0.5 * (leaves["a"] @ leaves["up"]) * scale + leaves["up_bias"], x["up_pre"])
    (y + leaves["residual"]).backward(x["dy"])
    eps = {"float64": 1e-13, "float32": 2e-5, "bfloat16": 3e-2}[row["element"]]
    for name in wanted:
        want = leaves[name[1:]].grad.numpy()
        size = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got[name].astype(np.float64), want, rtol=eps, atol=eps * size, err_msg=name)


def test_sums_come_from_gradients_that_are_not_rounded(place: str) -> None:
    """Gradients of 1 + 3 · 2^-10, which bfloat16 rounds to 1 for the products; so many add up to another number."""
    kind, rows = ElementKind.BF16, 4111
    dy = np.full((rows, 1), 1 + 3 * 2.0**-10, np.float32)
    desc = bc.GemmBackwardDescriptor(m=rows, n=1, k=1, activation="relu", element=kind, out_element="float32")
    given = {"dy": dy, "pre": np.ones_like(dy), "a": np.ones((rows, 1), kind.dtype), "b": np.ones((1, 1), kind.dtype)}
    got = call(bc.GemmBackwardPlan, desc, ("dbias", "db"), place, SIMT, **given)
    assert float(got["dbias"][0]) == 4128  # 4123.04 in steps of 32
    assert float(got["db"][0, 0]) == 4096  # 4111, of gradients that were rounded


@pytest.mark.parametrize("rows", [0, 1, 300, 5000])
@pytest.mark.parametrize("cols", [1, 8, 100, 300])
def test_sums_of_any_extents(place: str, rows: int, cols: int) -> None:
    """Blocks take chunks of columns and runs of rows; the last of each are partial."""
    if place == "emulator" and rows * cols > 50_000:
        pytest.skip("emulated thread by thread")
    dy = integers(2, rows, cols)
    desc = bc.GemmBackwardDescriptor(batch_shape=(2,), m=rows, n=cols, k=1, element="float32")
    given = {"dy": dy, "a": np.ones((2, rows, 1)), "b": np.ones((2, 1, cols))}
    got = call(bc.GemmBackwardPlan, desc, ("dbias", "drow_bias"), place, SIMT, **given)
    assert np.array_equal(got["dbias"], dy.sum((0, 1))) and np.array_equal(got["drow_bias"], dy.sum((0, 2)))


# -- what is launched -------------------------------------------------------------------------------------------------


def launched(wanted: tuple[str, ...], row: str = "simt", strides: Any = None, **facts: Any) -> list[str] | str:
    """The kernels that a problem of 8 x 16 x 32 takes on a row, "cublas" for a call of the library."""
    gated = facts.pop("gated", False)
    desc = bc.GemmBackwardDescriptor(m=8, n=16, k=32, element="float32", **facts)
    needed = {"dy", "a", "b", *wanted} | ({"up", "up_pre", "pre"} if gated else set())
    needed |= {"pre"} if desc.activation != "none" else set()
    views = {
        spec.name: View(0, s, (strides or {}).get(spec.name, dense_strides(s)), spec.elements(desc)[0])
        if spec.name in needed
        else None
        for spec in arrays_of(bc.GemmBackwardArgs)
        for s in (spec.shape(desc),)
    }
    plan = bc.GemmBackwardPlan.select(desc, device=H200)
    found = next(v for v in plan.rows if v.name == row).geometry(Problem(desc, H200, views))
    if isinstance(found, str):
        return found
    return ["cublas" if isinstance(step, LibraryStep) else step.kernel for step in found.steps]


def test_only_what_is_asked_for_is_launched() -> None:
    assert launched(("da",)) == ["simt_gemm"] and launched(("da", "db")) == ["simt_gemm", "simt_gemm"]
    assert launched(("dbias",)) == ["gradients", "bias"] and launched(("drow_bias",)) == ["row_bias"]
    assert launched(("dresidual",), activation="silu") == ["gradients"]
    assert launched(("db", "dbias"), activation="silu") == ["gradients", "bias", "simt_gemm"]
    assert launched(("da", "db", "dup"), gated=True) == [
        "gradients",
        "simt_gemm",
        "simt_gemm",
        "add",
        "simt_gemm",
        "simt_gemm",
    ]
    assert launched(("dup",), gated=True) == ["gradients", "simt_gemm"]


def test_each_product_takes_the_library_where_its_strides_do() -> None:
    assert launched(("da", "db"), "cublas") == ["cublas", "cublas"]
    assert launched(("da", "db"), "cublas", {"b": (32, 2)}) == ["simt_gemm", "cublas"]
    assert launched(("da", "db", "dbias"), "cublas", activation="gelu") == ["gradients", "bias", "cublas", "cublas"]
    assert "takes none" in str(launched(("dbias",), "cublas"))
    assert launched(("da",), "cublas_tf32", math_precision="tf32") == ["cublas"]


def test_a_mixture_of_rows_promises_bits_of_its_own() -> None:
    """Where strides send one product to another row, the order of sums is called after both, in their order."""
    desc = bc.GemmBackwardDescriptor(m=8, n=16, k=32, element="bfloat16")
    plan = bc.GemmBackwardPlan.select(desc, SIMT, device=H200)

    def promised(**strides: tuple[int, int]) -> Any:
        shapes = {"dy": (8, 16), "a": (8, 32), "b": (32, 16), "da": (8, 32), "db": (32, 16)}
        given = {
            name: TensorRef(i << 20, shape, strides.get(name, dense_strides(shape)), ElementKind.BF16)
            for i, (name, shape) in enumerate(shapes.items(), 1)
        }
        sku = plan.can_implement(bc.GemmBackwardArgs(**given)).sku
        assert sku is not None and sku.variant.startswith("wgmma")
        return sku.precision_guarantee

    dense, of_b, of_a = promised(), promised(b=(32, 2)), promised(a=(64, 2))
    assert len({dense, of_b, of_a}) == 3 and dense == promised(b=(64, 1))
    assert dense.error == of_b.error and dense.math_precision == of_a.math_precision


@pytest.mark.parametrize("device_scalars", [False, True])
def test_what_the_library_is_given(monkeypatch: pytest.MonkeyPatch, device_scalars: bool) -> None:
    """Its calls, computed on host memory: pointers by name, alpha, and no beta."""
    from test_products import HostGemm, view_of

    from baracuda_py.ops.gemm import library
    from baracuda_py.schedules import products

    seen: list[Any] = []

    class Seen(HostGemm):
        def run(self, a: int, b: int, c: int, d: int, alpha: Any, beta: Any, *rest: Any) -> None:
            seen.append((self.problem.device_scalars, alpha, beta, rest[0] % 256))
            super().run(a, b, c, d, 0.5, 0.0, *rest)

    monkeypatch.setattr(products.cublas, "prepare", Seen)
    monkeypatch.setattr(library, "_clear", lambda at, nbytes, stream: None)
    arrays = {"dy": integers(3, 7, 6), "a": integers(3, 5, 7, seed=1).swapaxes(1, 2), "b": integers(3, 5, 6, seed=2)}
    want = {
        "da": 0.5 * arrays["dy"] @ arrays["b"].swapaxes(1, 2),
        "db": 0.5 * arrays["a"].swapaxes(1, 2) @ arrays["dy"],
    }
    arrays |= {name: np.full(value.shape, np.nan) for name, value in want.items()}
    names = [spec.name for spec in arrays_of(bc.GemmBackwardArgs)]
    views = {name: view_of(arrays[name]) if name in arrays else None for name in names}
    desc = bc.GemmBackwardDescriptor(batch_shape=(3,), m=7, n=6, k=5, element="float64")
    plan = bc.GemmBackwardPlan.select(desc, device=H200)
    geometry = plan.rows[0].geometry(Problem(desc, H200, views))
    pointers = tuple(arrays[name].ctypes.data if name in arrays else 0 for name in names)
    scalars = ((4096, 1.0), (8192, 1.0)) if device_scalars else ((0, 0.5), (0, 7.0))
    for step in geometry.steps:
        step.prepare(H200)(pointers, scalars, 1 << 20, geometry.workspace, 0)
    for name, value in want.items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-12, atol=1e-12)
    alpha, beta = (4096, 1 << 20) if device_scalars else (0.5, 0.0)
    assert seen == [(device_scalars, alpha, beta, 0)] * 2


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"wanted": ()}, "are all None|no outputs"),
        (
            {"activation": "gelu"},
            r"pre, which an activation or a gate needs, is None; give what gemm\(return_pre=True\)",
        ),
        ({"up": integers(3, 4), "pre": integers(2, 4)}, "up_pre, which a gate needs, is None"),
        ({"up_pre": integers(2, 4)}, "up_pre is given without up"),
        ({"wanted": ("dup",)}, "dup is wanted but up is None"),
        ({"a": integers(2, 5)}, "b must have shape|a must have shape"),
        ({"activation": "tanh"}, "activation must be one of"),
    ],
)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    given = {"dy": integers(2, 4), "a": integers(2, 3), "b": integers(3, 4), "wanted": ("da",)} | change
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    facts = {name: value for name, value in given.items() if name == "activation"}
    with pytest.raises(InvalidProblemError, match=says):
        desc = bc.GemmBackwardDescriptor(m=2, n=4, k=3, element="float64", **facts)
        shapes = {spec.name: spec.shape(desc) for spec in arrays_of(bc.GemmBackwardArgs)}
        outputs = {name: np.empty(shapes[name]) for name in given["wanted"]}
        bc.GemmBackwardPlan.select(desc, device="cpu")(**arrays, **outputs)
