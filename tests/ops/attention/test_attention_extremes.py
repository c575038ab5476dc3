"""Weights made again of a saved lse: rows of the lowest number, as padded batches have, huge scores, single keys."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attention_rows import ANY, TENSOR_CORES, WHERE, Row, rounded, run, straight
from baracuda_py import (
    FlashDecodingPlan, FlashSdpaBackwardPlan, FlashSdpaPlan, SdpaBlockSparseBackwardPlan, SdpaBlockSparsePlan,
)  # fmt: skip
from baracuda_py.core.element import ElementKind

pytestmark = pytest.mark.usefixtures("emulation")

F32_LOWEST = float(np.finfo(np.float32).min)
BF16_LOWEST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
CLOSE = {"bfloat16": 2.0**-6, "float16": 2.0**-9, "float32": 2.0**-18, "float64": 2.0**-45}
GRADS = ("dq", "dk", "dv")
LENGTH = {"emulator": 80, "gpu": 330}


def element_of(row: str, half: str = "bfloat16") -> str:
    return "float32" if row == "simt" else half


def there_and_back(
    where: str, row: Row, facts: dict[str, Any], arrays: dict[str, Any], element: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs of the forward, and the gradients that the backward makes of them."""
    inputs = {"mask": None, "slopes": None, "sinks": None, "seed": 3, "offset": 5} | arrays
    made = run(where, FlashSdpaPlan, FlashSdpaPlan.descriptor(**facts), _without(inputs, "dy"), {"y", "lse"}, row)
    acc = np.float64 if element == "float64" else np.float32
    saved = {"y": rounded(element, made["y"])[0], "lse": made["lse"].astype(acc)}
    desc = FlashSdpaBackwardPlan.descriptor(**facts)
    return made, run(where, FlashSdpaBackwardPlan, desc, inputs | saved, set(GRADS), row)


def _without(arrays: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in arrays.items() if name not in names}


def inputs(element: str, shape: tuple[int, int, int], keys: int, d: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    names = {"q": shape[2], "k": keys, "v": keys, "dy": shape[2]}
    made = rounded(element, *(rng.standard_normal((*shape[:2], n, d)) for n in names.values()))
    return dict(zip(names, made, strict=True))


# ---- padded batches ------------------------------------------------------------------------------------------------

PADDED = [
    # the mask's element, what hides, whether causality is in the mask, whether padded queries have a gradient
    ("float32", F32_LOWEST, True, False), ("bfloat16", BF16_LOWEST, False, True), ("float32", -1e9, True, True),
    ("float32", -4e9, False, False),
]  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ANY)
@pytest.mark.parametrize(("kind", "lowest", "whole", "noisy"), PADDED)
def test_left_padding_as_hugging_face_masks_it(
    row: str, kind: str, lowest: float, whole: bool, noisy: bool, where: str
) -> None:
    """A batch padded at the left: an additive mask of the lowest number, which all of a padded query's keys have."""
    element, n = element_of(row), LENGTH[where]
    made = inputs(element, (2, 1, n), n, 64)
    pads = np.array([5, 37])[:, None, None, None]
    keys, queries = np.arange(n)[None, None, None], np.arange(n)[None, None, :, None]
    seen = (keys >= pads) & (keys <= queries) if whole else keys >= pads
    mask = np.where(seen, 0.0, lowest).astype(ml_dtypes.bfloat16 if kind == "bfloat16" else np.float32)
    if not noisy:
        made["dy"][...] = np.where(queries < pads, 0, made["dy"].astype(np.float64)).astype(made["dy"].dtype)
    facts = {"batch_size": 2, "num_heads": 1, "num_kv_heads": 1, "query_len": n, "key_len": n, "d_k": 64, "d_v": 64}
    facts |= {"scale": 0.125, "is_causal": not whole, "element": element}
    forward, grads = there_and_back(where, ANY[row], facts, made | {"mask": mask}, element)
    visible = True if whole else keys <= queries
    truth = straight(**made, scale=0.125, bias=mask, seen=visible, acc=np.float32)
    close = CLOSE[element]
    np.testing.assert_allclose(forward["y"], truth.y, rtol=close, atol=close)
    assert np.isfinite(forward["lse"]).all()
    for name in GRADS:
        want = getattr(truth, name)
        assert np.abs(grads[name] - want).max() <= close * np.abs(want).max(), name
    padded = np.broadcast_to(queries < pads, grads["dq"].shape)
    if not noisy:
        assert (grads["dq"][padded] == 0).all()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ANY)
@pytest.mark.parametrize("n", [80, 128])
def test_key_padding_as_a_boolean_mask(row: str, n: int, where: str) -> None:
    """A batch padded at the right: [batch, 1, 1, keys], True where a key is seen."""
    element, n = element_of(row), n * (1 if where == "emulator" else 3)
    made = inputs(element, (2, 1, n), n, 64)
    mask = np.arange(n) < np.array([n, n - 19])[:, None, None, None]
    facts = {"batch_size": 2, "num_heads": 1, "num_kv_heads": 1, "query_len": n, "key_len": n, "d_k": 64, "d_v": 64}
    facts |= {"scale": 0.125, "element": element}
    forward, grads = there_and_back(where, ANY[row], facts, made | {"mask": mask}, element)
    truth = straight(**made, scale=0.125, seen=mask)
    close = CLOSE[element]
    for name, got in ({"y": forward["y"]} | grads).items():
        want = getattr(truth, name)
        assert np.abs(got - want).max() <= close * np.abs(want).max(), name


# ---- huge scores ---------------------------------------------------------------------------------------------------

SIZES = [1e9, 1e10, 1e20, 1e30]


def dominated(element: str, size: float, by_scale: bool, n: int, d: int) -> tuple[dict[str, Any], float, np.ndarray]:
    """Operands whose scores are about `size` times normal numbers; the scale, and the one key that each query has."""
    made = inputs(element, (1, 1, n), n, d, seed=int(np.log10(size)))
    scale = size * d**-0.5 if by_scale else d**-0.5
    if not by_scale:
        for name in ("q", "k"):
            made[name] = rounded(element, made[name].astype(np.float64) * size**0.5)[0]
    scores = scale * (made["q"].astype(np.float64) @ made["k"].astype(np.float64).swapaxes(-1, -2))
    second, first = np.sort(scores, axis=-1)[..., -2:].transpose(3, 0, 1, 2)
    acc = np.float64 if element == "float64" else np.float32
    clear = (first - second > 200 * np.spacing(np.abs(scores).max().astype(acc))) & (first - second > 200)
    made["dy"][~clear] = 0
    return made, scale, np.argmax(scores, axis=-1)


def of_one_key(made: dict[str, Any], keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y and dv where each query has the weight of one key."""
    v, dy = made["v"].astype(np.float64), made["dy"].astype(np.float64)
    dv = np.zeros_like(v)
    np.add.at(dv[0, 0], keys[0, 0], dy[0, 0])
    return v[0, 0][keys], dv


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", [*ANY, "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("by_scale", [False, True])
def test_finite_scores_of_any_size(row: str, size: float, by_scale: bool, where: str) -> None:
    element = row if row == "float64" else element_of(row, "float16" if by_scale else "bfloat16")
    for d, facts in ((64, {}), (64, {"is_causal": True})) if where == "emulator" else ((64, {}), (128, {}), (256, {})):
        n = LENGTH[where]
        made, scale, keys = dominated(element, size, by_scale, n, d)
        if facts:
            scores = scale * (made["q"].astype(np.float64) @ made["k"].astype(np.float64).swapaxes(-1, -2))
            keys = np.where(np.tri(n, dtype=bool), scores, -np.inf).argmax(axis=-1)
        sizes = {"batch_size": 1, "num_heads": 1, "num_kv_heads": 1, "query_len": n, "key_len": n, "d_k": d, "d_v": d}
        chosen = ANY.get(row, ANY["simt"])
        forward, grads = there_and_back(
            where, chosen, sizes | facts | {"scale": scale, "element": element}, made, element
        )
        check_one_key(made, keys, forward, grads, element, size)


def check_one_key(made: Any, keys: Any, forward: Any, grads: Any, element: str, size: float = 0.0) -> None:
    """All is finite, and each query has one key; float64 scores of 1e9 are off by what their sums of d terms round."""
    for name, got in (forward | grads).items():
        assert np.isfinite(got).all(), name
    y, dv = of_one_key(made, keys)
    clear = (made["dy"].astype(np.float64) != 0).any(axis=-1)
    np.testing.assert_array_equal(forward["y"][clear], y[clear])
    close = CLOSE[element]
    close += made["q"].shape[-1] * 2.0**-53 * min(size, 2.0**40) if element == "float64" else 0
    np.testing.assert_allclose(grads["dv"], dv, rtol=close, atol=close)
    assert (grads["dq"] == 0).all()
    assert (grads["dk"] == 0).all()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", TENSOR_CORES)
@pytest.mark.parametrize("terms", ["slopes", "softcap", "sinks", "mask"])
def test_huge_scores_with_terms(row: str, terms: str, where: str) -> None:
    n, element = LENGTH[where], "bfloat16"
    made, scale, keys = dominated(element, 1e10, False, n, 64)
    given: dict[str, Any] = {"slopes": np.full(1, 0.1, np.float32)} if terms == "slopes" else {}
    given |= {"sinks": np.full(1, 3.0, np.float32)} if terms == "sinks" else {}
    given |= {"mask": np.ones((1, 1, 1, n), bool)} if terms == "mask" else {}
    facts = {"batch_size": 1, "num_heads": 1, "num_kv_heads": 1, "query_len": n, "key_len": n, "d_k": 64, "d_v": 64}
    facts |= {"scale": scale, "element": element, "softcap": 0.0 if terms != "softcap" else 1e14}
    top = np.zeros(made["q"].shape[:3], bool)
    if terms == "sinks":  # of scores below 0 the sink has all
        scores = scale * (made["q"].astype(np.float64) @ made["k"].astype(np.float64).swapaxes(-1, -2))
        top = scores.max(axis=-1) < 1e4
        made["dy"][top] = 0
    forward, grads = there_and_back(where, TENSOR_CORES[row], facts, made | given, element)
    check_one_key(made, keys, forward, grads, element)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("size", [1e9, 1e20])
def test_block_sparse_attention_of_huge_scores(element: str, size: float, where: str) -> None:
    n = 128
    made, scale, keys = dominated(element, size, False, n, 64)
    facts = {"batch_size": 1, "num_heads": 1, "num_kv_heads": 1, "query_len": n, "key_len": n, "d_k": 64, "d_v": 64}
    facts |= {"scale": scale, "element": element, "query_block": 64, "key_block": 64}
    pattern = {"pattern": np.ones((1, 1, 2, 2), bool)}
    row, acc = ANY["simt"], np.float32
    desc = SdpaBlockSparsePlan.descriptor(**facts)
    forward = run(where, SdpaBlockSparsePlan, desc, _without(made, "dy") | pattern, {"y", "lse"}, row)
    saved = {"y": rounded(element, forward["y"])[0], "lse": forward["lse"].astype(acc)}
    desc = SdpaBlockSparseBackwardPlan.descriptor(**facts)
    grads = run(where, SdpaBlockSparseBackwardPlan, desc, made | pattern | saved, set(GRADS), row)
    check_one_key(made, keys, forward, grads, element)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("element", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_decoding_of_huge_scores(element: str, size: float, where: str) -> None:
    n, d = 600, 64
    rng = np.random.default_rng(1)
    q, k, v = rounded(element, *(rng.standard_normal((1, 1, *rest)) for rest in ((d,), (n, d), (n, d))))
    q, k = rounded(element, *(x.astype(np.float64) * size**0.5 for x in (q, k)))
    scores = d**-0.5 * np.einsum("bhd,bhnd->bhn", q.astype(np.float64), k.astype(np.float64))
    sizes = {"batch_size": 1, "num_heads": 1, "num_kv_heads": 1, "max_cache_len": n, "d_k": d, "d_v": d}
    desc = FlashDecodingPlan.descriptor(**sizes, scale=d**-0.5, element=element)
    wanted = {"y", "lse", "weights"}
    got = run(where, FlashDecodingPlan, desc, {"q": q, "k": k, "v": v, "lengths": np.array([n])}, wanted, ANY["simt"])
    np.testing.assert_array_equal(got["y"][0, 0], v.astype(np.float64)[0, 0, scores.argmax()])
    np.testing.assert_array_equal(got["weights"][0, 0], np.arange(n) == scores.argmax())
    np.testing.assert_allclose(got["lse"], scores.max(), rtol=1e-5)


# ---- one key a row -------------------------------------------------------------------------------------------------


def one_key(name: str, n: int) -> tuple[dict[str, Any], dict[str, Any], slice]:
    """Facts and operands under which the queries of the slice see one key."""
    everything = slice(None)
    if name == "causal":
        return {"is_causal": True}, {}, slice(0, 1)
    if name == "window":
        return {"is_causal": True, "window_left": 0}, {}, everything
    if name == "mask":
        return {}, {"mask": np.eye(n, dtype=bool)[None, None]}, everything
    return {"key_len": 1}, {}, everything


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("row", ["bfloat16", "float16", "mma", "any", "float32", "float64"])
@pytest.mark.parametrize("pattern", ["causal", "window", "mask", "one"])
def test_a_row_of_one_key_has_no_gradient_of_its_query_whatever_dropout_did(row: str, pattern: str, where: str) -> None:
    element = "bfloat16" if row in ("mma", "any") else row
    chosen = {"mma": ANY["mma"], "any": ANY["wgmma_any"]}.get(row, ANY["wgmma" if element.endswith("16") else "simt"])
    n = LENGTH[where]
    facts, given, rows = one_key(pattern, n)
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 2, "query_len": n, "key_len": n, "d_k": 64, "d_v": 64}
    sizes |= {"dropout_p": 0.4, "scale": 0.125, "element": element} | facts
    made = inputs(element, (1, 2, n), sizes["key_len"], 64)
    forward, grads = there_and_back(where, chosen, sizes, made | given, element)
    assert (grads["dq"][:, :, rows] == 0).all()
    assert (forward["y"][:, :, rows] != 0).any()  # dropout left some
    assert (grads["dv"] != 0).any()


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_the_same_in_numpy(element: str) -> None:
    from baracuda_py.testing.reference import call

    made = inputs(element, (1, 2, 40), 40, 16)
    desc = FlashSdpaBackwardPlan.descriptor(
        batch_size=1, num_heads=2, query_len=40, key_len=40, d_k=16, d_v=16, is_causal=True, window_left=0,
        dropout_p=0.4, element=element,
    )  # fmt: skip
    arrays: dict[str, Any] = made | {"mask": None, "slopes": None, "sinks": None, "seed": 3, "offset": 5}
    FlashSdpaBackwardPlan.complete(desc, arrays)
    wide = {n: x.astype(np.float64) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    assert ElementKind.of(element) is desc.element
    assert (call(FlashSdpaBackwardPlan, desc, wide, frozenset({"dq"}))["dq"] == 0).all()


# ---- NumPy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowest", [F32_LOWEST, BF16_LOWEST, -1e9])
def test_numpy_gradients_of_rows_of_the_lowest_number(lowest: float) -> None:
    from baracuda_py import flash_sdpa, flash_sdpa_backward

    made = {name: x.astype(np.float32) for name, x in inputs("float32", (2, 1, 20), 20, 8).items()}
    made["dy"][:, :, :3] = 0
    mask = np.where(np.arange(20)[:, None] < 3, lowest, 0.0).astype(np.float32)
    y, lse = flash_sdpa(*(made[n] for n in "qkv"), mask, return_lse=True)
    grads = flash_sdpa_backward(*(made[n] for n in "qkv"), y, lse, made["dy"], mask)
    truth = straight(**made, scale=8**-0.5, bias=mask, acc=np.float64)
    np.testing.assert_allclose(y, truth.y, rtol=1e-5, atol=1e-6)
    for name, got in zip(GRADS, grads, strict=True):
        np.testing.assert_allclose(got, getattr(truth, name), rtol=1e-4, atol=1e-5)
