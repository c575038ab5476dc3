"""sample: greedy, top-k and top-p sets against a plain loop, frequencies, ties, the documented policies."""

import numpy as np
import pytest

from baracuda_py.ops.random.philox import philox_uniform
from baracuda_py.ops.random.sampling import ROWS, SamplingPlan
from baracuda_py.ops.random.sampling_functions import sample
from baracuda_py.testing import evaluate, fill
from baracuda_py.testing.places import call


def _by_hand(row: np.ndarray, temperature: float, top_k: int, top_p: float, u: float) -> int:
    """The definition, one candidate at a time."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    weight = {i: float(np.exp((row[i] - row[order[0]]) / temperature)) for i in order}
    kept = order[:top_k] if top_k else order
    total, running, nucleus = sum(weight[i] for i in kept), 0.0, []
    for i in kept:
        nucleus.append(i)
        running += weight[i]
        if running >= top_p * total:
            break
    target, running = u * sum(weight[i] for i in nucleus), 0.0
    for i in sorted(nucleus):
        running += weight[i]
        if running > target:
            return i
    raise AssertionError


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (7, 1.0), (0, 0.6), (12, 0.8), (1, 0.3), (0, 1e-9)])
def test_against_the_definition(top_k: int, top_p: float) -> None:
    logits = np.round(np.random.default_rng(1).standard_normal((40, 50)) * 4) / 4  # with ties
    ids = sample(logits, temperature=0.8, top_k=top_k, top_p=top_p, seed=11, offset=5)
    u = philox_uniform(11, 5, 40)
    assert ids.tolist() == [_by_hand(row, 0.8, top_k, top_p, float(x)) for row, x in zip(logits, u, strict=True)]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": -1.0}, {"top_k": 1}, {"top_p": 0.0}])
def test_greedy(options: dict[str, float]) -> None:
    logits = np.random.default_rng(2).integers(0, 5, (20, 30)).astype(np.float32)
    ids, logprob = sample(logits, seed=3, return_logprob=True, **options)
    assert np.array_equal(ids, logits.argmax(axis=1)) and not logprob.any()


def test_frequencies() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    ids, logprob = sample(np.broadcast_to(np.log(p), (20000, 4)), seed=4, return_logprob=True)
    assert np.abs(np.bincount(ids, minlength=4) / 20000 - p).max() < 0.01
    np.testing.assert_allclose(logprob, np.log(p)[ids], rtol=1e-12)


def test_equal_logits_go_by_index() -> None:
    flat = np.zeros((500, 10), np.float32)
    assert set(sample(flat, top_k=3, seed=5).tolist()) == {0, 1, 2}
    assert set(sample(flat, top_p=0.5, seed=5).tolist()) == {0, 1, 2, 3, 4}
    signed = np.where(np.arange(10) % 2, 0.0, -0.0).astype(np.float32)
    assert set(sample(np.broadcast_to(signed, (500, 10)), top_k=3, seed=5).tolist()) == {0, 1, 2}


def test_masked_infinite_and_nan_logits() -> None:
    inf, nan = np.inf, np.nan
    logits = np.array([[-inf, 1.0, -inf], [nan, nan, nan], [-inf, -inf, -inf], [inf, 0.0, inf], [nan, 0.0, -inf]])
    ids, logprob = sample(logits, seed=6, return_logprob=True)
    assert ids[:3].tolist() == [1, -1, -1] and ids[3] in (0, 2) and ids[4] == 1
    assert logprob[0] == 0 and np.isnan(logprob[1]) and np.isclose(logprob[3], np.log(0.5))


def test_offsets_and_rows_draw_apart() -> None:
    logits = np.zeros((64, 1000))
    first, again, other = (sample(logits, seed=7, offset=o) for o in (0, 0, 1))
    assert np.array_equal(first, again) and (first != other).mean() > 0.9 and len(set(first.tolist())) > 50


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_index_element(dtype: str) -> None:
    assert sample(np.zeros((3, 4), np.float32), seed=1, index_element=dtype).dtype == dtype


@pytest.mark.parametrize("probabilities", [False, True])
def test_infinity_takes_all(place: str, probabilities: bool) -> None:
    """Beside an infinite logit or probability others have 0, whose logarithm is no difference of infinities."""
    x = np.array([[1.0, np.inf, 0.5, 2], [np.inf, 1, np.inf, 0.25]], np.float32)
    desc = SamplingPlan.descriptor(batch_size=2, vocab_size=4, element="float32", top_n=1, probabilities=probabilities)
    outputs = ["ids", "logprob", "top_ids", "probs"]
    made = call(SamplingPlan, desc, outputs, place, logits=x, temperature=0.7, seed=1, offset=0)
    assert made["probs"].tolist() == [[0, 1, 0, 0], [0.5, 0, 0.5, 0]]
    assert made["ids"][0] == 1 and made["logprob"][0] == 0 and made["top_ids"].tolist() == [[1], [0]]


@pytest.mark.gpu
@pytest.mark.parametrize("vocab", [50, 9001, 131072])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (50, 1.0), (0, 0.9), (6000, 0.7)])
@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_ids_equal_the_reference(vocab: int, top_k: int, top_p: float, temperature: float) -> None:
    import cupy as cp

    logits = np.random.default_rng(8).standard_normal((8, vocab)).astype(np.float32)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": 9, "offset": 2**40}
    wanted, logprob = sample(logits, return_logprob=True, **options)
    ids, on_device = sample(cp.asarray(logits), return_logprob=True, **options)
    assert np.array_equal(ids.get(), wanted)
    np.testing.assert_allclose(on_device.get(), logprob, rtol=2e-6, atol=1e-6)
    unaligned = cp.concatenate([cp.zeros((8, 1), "float32"), cp.asarray(logits)], axis=1)[:, 1:]
    assert np.array_equal(sample(unaligned, **options).get(), ids.get())


@pytest.mark.parametrize("compute", [np.float64, np.longdouble])
@pytest.mark.parametrize("option", [{"top_p": 0.8}, {"typical_p": 0.8}])
def test_shares_of_equal_weights_are_whole_in_every_precision(option: dict[str, float], compute: type) -> None:
    """0.8 of 185 equal weights are 148, though the double next to 0.8 lies above it."""
    desc = SamplingPlan.descriptor(batch_size=1, vocab_size=185, probabilities=True, element="float64")
    case = fill(SamplingPlan, desc, np.random.default_rng(1), dict.fromkeys(ROWS, False))
    case.arrays.update(logits=np.ones((1, 185)), top_p=1.0, typical_p=1.0, epsilon=0.0, eta=0.0, top_k=0, min_p=0.0)
    case.arrays.update(option)
    assert np.flatnonzero(evaluate(case, compute)["masked"]).tolist() == list(range(148))
