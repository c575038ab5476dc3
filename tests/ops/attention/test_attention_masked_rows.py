"""Rows whose whole mask is a large number: the backward's weights are the forward's, those of a softmax."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from attention_rows import ANY, WHERE, Row, rounded, run, straight
from baracuda_py import FlashSdpaPlan
from baracuda_py.testing.gradients import backward_of

F32, BF16, F16 = (float(ml_dtypes.finfo(t).min) for t in (np.float32, ml_dtypes.bfloat16, np.float16))
LOWEST = [F32, BF16, F16, -3e38, 3e38, -1e30, -1e9, -1e6, -1e4, -1e3]
CLOSE = {"bfloat16": 2.0**-6, "float16": 2.0**-9, "float32": 2.0**-18, "float64": 2.0**-45}
GRADS = ("dq", "dk", "dv", "dmask")
ROWS = {"float32": ANY["simt"], "float64": ANY["simt"], **{name: row for name, row in ANY.items() if name != "simt"}}


def element_of(row: str, half: str = "bfloat16") -> str:
    return row if row.startswith("float") else half


def exact(element: str, shape: tuple[int, int], queries: int, keys: int, d: int, seed: int = 0) -> dict[str, Any]:
    """Operands whose products are exact in float32, so that scores round at the mask alone."""
    rng = np.random.default_rng(seed)
    extents = {"q": queries, "k": keys, "v": keys, "dy": queries}
    made = {n: rng.integers(-3, 4, (*shape, extent, d)) / 2 for n, extent in extents.items()}
    return dict(zip(made, rounded(element, *made.values()), strict=True))


def mixed(queries: int, keys: int, lowest: float) -> np.ndarray:
    """Masks of rows: all the number, it beside others of its size, beside 0, beside -inf, and an ordinary one."""
    rng = np.random.default_rng(1)
    mask = np.full((queries, keys), lowest)
    mask[1::5] = np.where(rng.random(mask[1::5].shape) < 0.5, lowest, lowest * (1 - 2.0**-10))
    mask[2::5] = np.where(rng.random(mask[2::5].shape) < 0.5, lowest, 0)
    mask[3::5] = np.where(rng.random(mask[3::5].shape) < 0.5, lowest, -np.inf)
    mask[4::5] = rng.integers(-8, 9, mask[4::5].shape) / 4
    return mask


def there_and_back(
    where: str, row: Row, facts: dict[str, Any], arrays: dict[str, Any], element: str, wanted: set[str],
    plan: Any = FlashSdpaPlan,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Outputs of the forward, and the gradients that the backward makes of what it saves."""
    inputs = {"mask": None, "slopes": None, "sinks": None, "seed": 3, "offset": 5} | arrays
    forward = {name: x for name, x in inputs.items() if name != "dy"}
    made = run(where, plan, plan.descriptor(**facts), forward, {"y", "lse"}, row)
    acc = np.float64 if element == "float64" else np.float32
    saved = {"y": rounded(element, made["y"])[0], "lse": made["lse"].astype(acc)}
    back = backward_of(plan)
    return made, run(where, back, back.descriptor(**facts), inputs | saved, wanted, row)


def sizes(element: str, queries: int, keys: int, d: int, heads: int = 1, batch: int = 1) -> dict[str, Any]:
    return {
        "batch_size": batch, "num_heads": heads, "num_kv_heads": heads, "query_len": queries, "key_len": keys, "d_k": d,
        "d_v": d, "scale": 0.125, "element": element,
    }  # fmt: skip


def gradients(made: dict[str, Any], mask: np.ndarray, element: str, seen: Any = True) -> dict[str, Any]:
    """By the Jacobian of the softmax of the scores as the forward rounds them; dmask is ds."""
    acc = np.float64 if element == "float64" else np.float32
    truth = straight(**made, scale=0.125, bias=mask, seen=seen & (mask != -np.inf), acc=acc)
    v, dy = (made[n].astype(np.longdouble) for n in ("v", "dy"))
    dp = dy @ v.swapaxes(-1, -2)
    ds = truth.p * (dp - (truth.p * dp).sum(axis=-1, keepdims=True))
    return {"y": truth.y, "dq": truth.dq, "dk": truth.dk, "dv": truth.dv, "dmask": ds.astype(np.float64)}


def compare(got: dict[str, Any], want: dict[str, Any], close: float) -> None:
    for name, x in got.items():
        error = np.abs(x - want[name]).max()
        assert error <= close * np.abs(want[name]).max() + 1e-30, (name, error)


# ---- known values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowest", LOWEST)
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_four_keys_have_a_quarter_each(element: str, lowest: float) -> None:
    zeros, ones = rounded(element, np.zeros((1, 1, 4, 8)), np.ones((1, 1, 1, 8)))
    q, mask = zeros[:, :, :1], np.full((1, 4), lowest, np.float32)
    y, lse = bc.flash_sdpa(q, zeros, zeros, mask, return_lse=True)
    _, _, dv = bc.flash_sdpa_backward(q, zeros, zeros, y, lse, ones, mask)
    np.testing.assert_array_equal(dv.astype(np.float64), 0.25)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ROWS)
def test_four_keys_have_a_quarter_each_in_kernels(row: str, where: str) -> None:
    element = element_of(row)
    made = {name: np.zeros((1, 1, n, 64)) for name, n in {"q": 1, "k": 4, "v": 4}.items()} | {
        "dy": np.ones((1, 1, 1, 64))
    }
    made = dict(zip(made, rounded(element, *made.values()), strict=True))
    mask = np.full((1, 1, 1, 4), F32, np.float32)
    _, grads = there_and_back(where, ROWS[row], sizes(element, 1, 4, 64), made | {"mask": mask}, element, {"dv"})
    np.testing.assert_allclose(grads["dv"], 0.25, rtol=CLOSE[element] / 4)


# ---- random operands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowest", LOWEST)
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_gradients_of_rows_of_any_size_in_numpy(element: str, lowest: float) -> None:
    """The NumPy backend keeps scores in float64."""
    made = exact(element, (2, 2), 20, 23, 8)
    mask = mixed(20, 23, lowest).astype(element)
    q, k, v, dy = (made[n] for n in ("q", "k", "v", "dy"))
    y, lse = bc.flash_sdpa(q, k, v, mask, scale=0.125, return_lse=True)
    got = bc.flash_sdpa_backward(q, k, v, y, lse, dy, mask, scale=0.125, return_dmask=True)
    want = gradients(made, mask.astype(np.float64), "float64")
    want["dmask"] = want["dmask"].sum(axis=(0, 1))
    close = 1e-5 if element == "float32" else 1e-12
    compare({"y": y} | dict(zip(GRADS, got, strict=True)), want, close)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("lowest", LOWEST)
def test_gradients_of_rows_of_any_size(row: str, lowest: float, where: str) -> None:
    element = element_of(row, "float16" if abs(lowest) < 1e5 else "bfloat16")
    made = exact(element, (1, 1), 70, 77, 64)
    mask = mixed(70, 77, lowest).astype("float64" if element == "float64" else "float32")[None, None]
    facts = sizes(element, 70, 77, 64)
    forward, got = there_and_back(where, ROWS[row], facts, made | {"mask": mask}, element, set(GRADS))
    compare({"y": forward["y"]} | got, gradients(made, mask.astype(np.float64), element), CLOSE[element])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["float32", "mma", "wgmma"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_left_padded_batches_under_masks_as_eager_models_make_them(row: str, kind: str, where: str) -> None:
    """Causality and padding in one mask of the element's lowest number: a padded query has it at every key."""
    element, n = element_of(row, "float16" if kind == "float16" else "bfloat16"), 70
    made = exact(element, (2, 2), n, n, 64)
    pads = np.array([5, 37])[:, None, None, None]
    keys, queries = np.arange(n), np.arange(n)[:, None]
    mask = np.where((keys >= pads) & (keys <= queries), 0, float(ml_dtypes.finfo(kind).min)).astype(kind)
    facts = sizes(element, n, n, 64, heads=2, batch=2)
    wanted = {"dq", "dk", "dv"}
    forward, got = there_and_back(where, ROWS[row], facts, made | {"mask": mask}, element, wanted)
    compare({"y": forward["y"]} | got, gradients(made, mask.astype(np.float64), element), CLOSE[element])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["float32", "mma", "wgmma"])
def test_causal_rows_of_the_lowest_number(row: str, where: str) -> None:
    element, n = element_of(row), 70
    made = exact(element, (1, 1), n, n, 64)
    mask = mixed(n, n, F32).astype(np.float32)[None, None]
    mask[..., 3::5, 0] = F32  # a row that hides all keys has none
    facts = sizes(element, n, n, 64) | {"is_causal": True, "window_left": 50}
    forward, got = there_and_back(where, ROWS[row], facts, made | {"mask": mask}, element, set(GRADS))
    ahead = np.arange(n) - np.arange(n)[:, None]
    want = gradients(made, mask.astype(np.float64), element, (ahead <= 0) & (ahead >= -50))
    compare({"y": forward["y"]} | got, want, CLOSE[element])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["float32", "mma"])
def test_sinks_slopes_and_a_soft_cap_beside_the_lowest_number(row: str, where: str) -> None:
    """A sink as low as the mask has a key's weight; dslopes and dsinks by differences of the weights."""
    element, n, d = element_of(row), 40, 64
    made = exact(element, (1, 2), n, n, d)
    mask = np.full((1, 1, n, n), F32, np.float32)
    given = {"mask": mask, "sinks": np.array([F32, 0.5], np.float32), "slopes": np.array([0.25, 0.5], np.float32)}
    facts = sizes(element, n, n, d, heads=2) | {"softcap": 2.0}
    wanted = {"dq", "dk", "dv", "dsinks", "dslopes"}
    forward, got = there_and_back(where, ROWS[row], facts, made | given, element, wanted)
    v, dy = (made[name].astype(np.float64) for name in ("v", "dy"))
    p = np.full((1, 2, n, n), 1 / (n + 1))
    p[:, 1] = 0  # the other head's sink has all
    dp = dy @ v.swapaxes(-1, -2)
    delta = (p * dp).sum(axis=-1, keepdims=True)
    ds = p * (dp - delta)
    distance = np.abs(np.arange(n) - np.arange(n)[:, None])
    sink = np.array([1 / (n + 1), 1.0])
    want = {"y": p @ v, "dv": p.swapaxes(-1, -2) @ dy, "dslopes": -(ds * distance).sum(axis=(0, 2, 3))}
    want["dsinks"] = -(sink * delta.sum(axis=(0, 2, 3)))
    cap = np.tanh(made["q"].astype(np.float64) @ made["k"].astype(np.float64).swapaxes(-1, -2) * 0.125 / 2)
    ds = ds * (1 - cap * cap) * 0.125
    want |= {"dq": ds @ made["k"].astype(np.float64), "dk": ds.swapaxes(-1, -2) @ made["q"].astype(np.float64)}
    close = CLOSE[element] * (2 if element != "float32" else 8)  # tanh of the hardware; sums of 40 distances
    compare({"y": forward["y"]} | got, want, close)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["float64", "mma", "wgmma"])
def test_dropout_of_rows_of_the_lowest_number(row: str, where: str) -> None:
    element, n = element_of(row), 70
    made = exact(element, (1, 1), n, n, 64)
    mask = np.full((1, 1, n, n), F32, np.float32)
    facts = sizes(element, n, n, 64) | {"dropout_p": 0.5}
    _, got = there_and_back(where, ROWS[row], facts, made | {"mask": mask}, element, {"dv"})
    eye = dict(made, v=np.broadcast_to(np.eye(n, 64), made["v"].shape).astype(made["v"].dtype))
    shown, _ = there_and_back(where, ROWS[row], facts, eye | {"mask": mask}, element, {"dv"})  # the weights kept
    dy = made["dy"].astype(np.float64)
    want = np.where(shown["y"] != 0, 2 / n, 0).swapaxes(-1, -2) @ dy
    error = np.abs(got["dv"][:, :, :64] - want).max()
    assert error <= CLOSE[element] * np.abs(want).max()


# ---- formulas ------------------------------------------------------------------------------------------------------

FORMULA = {"score": "s + bias[q, k]"}


def by_formula(made: dict[str, Any], bias: np.ndarray) -> dict[str, Any]:
    q, k, v, dy = (made[n] for n in ("q", "k", "v", "dy"))
    y, lse = bc.flash_sdpa(q, k, v, **FORMULA, bias=bias, scale=0.125, return_lse=True)
    facts: dict[str, Any] = {"scale": 0.125, "return_dbias": True}
    got = bc.flash_sdpa_backward(q, k, v, y, lse, dy, **FORMULA, bias=bias, **facts)
    return {"y": y} | dict(zip(("dq", "dk", "dv", "dmask"), got, strict=True))


@pytest.mark.parametrize("lowest", [F32, F16, -1e9, -1e4])
def test_formulas_add_numbers_of_any_size_in_numpy(lowest: float) -> None:
    made = exact("float32", (1, 1), 20, 23, 8)
    bias = mixed(20, 23, lowest)
    bias = np.where(bias == -np.inf, lowest, bias).astype(np.float32)
    want = gradients(made, bias.astype(np.float64), "float64")
    want["dmask"] = want["dmask"][0, 0]
    compare(by_formula(made, bias), want, 1e-5)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["float32", "mma"])
@pytest.mark.parametrize("lowest", [F32, -1e9])
def test_formulas_add_numbers_of_any_size(row: str, lowest: float, where: str) -> None:
    element = element_of(row)
    made = exact(element, (1, 1), 40, 77, 64)
    bias = mixed(40, 77, lowest)
    bias = np.where(bias == -np.inf, lowest, bias).astype(np.float32)
    facts = sizes(element, 40, 77, 64) | {"bias_shape": bias.shape, "bias_element": "float32"}
    wanted = {"dq", "dk", "dv", "dbias"}
    plan = bc.attention(**FORMULA).plan()
    forward, got = there_and_back(where, ROWS[row], facts, made | {"bias": bias}, element, wanted, plan)
    want = gradients(made, bias.astype(np.float64), element)
    want["dbias"] = want["dmask"][0, 0]
    compare({"y": forward["y"]} | got, want, CLOSE[element])


# ---- bridges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowest", [F32, -1e9, -1e4])
def test_torchs_autograd(lowest: float) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bct
    from baracuda_py.nn import functional

    made = exact("float32", (2, 1), 20, 20, 8)
    mask = torch.from_numpy(mixed(20, 20, lowest).astype(np.float32))
    want = gradients(made, mask.double().numpy(), "float64")
    want["dmask"] = want["dmask"].sum(axis=(0, 1))
    calls = {
        "flash_sdpa": lambda q, k, v, m: bct.flash_sdpa(q, k, v, m, scale=0.125),
        "functional": lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.125),
    }
    for name, call in calls.items():
        given = [torch.from_numpy(made[n]).requires_grad_() for n in "qkv"] + [mask.clone().requires_grad_()]
        y = call(*given)
        y.backward(torch.from_numpy(made["dy"]))
        got = {"y": y.detach().numpy()} | dict(zip(GRADS, (x.grad.numpy() for x in given), strict=True))
        compare(got, want, 1e-5), name


@pytest.mark.parametrize("lowest", [F32, -1e9, -1e4])
def test_jaxs_gradient(lowest: float) -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    made = exact("float32", (2, 1), 20, 20, 8)
    mask = mixed(20, 20, lowest).astype(np.float32)
    want = gradients(made, mask.astype(np.float64), "float64")
    want["dmask"] = want["dmask"].sum(axis=(0, 1))

    def loss(q: Any, k: Any, v: Any, m: Any) -> Any:
        return (bj.flash_sdpa(q, k, v, m, scale=0.125) * made["dy"]).sum()

    got = jax.grad(loss, argnums=(0, 1, 2, 3))(*(made[n] for n in "qkv"), mask)
    compare(dict(zip(GRADS, map(np.asarray, got), strict=True)), want, 1e-5)
