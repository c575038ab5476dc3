"""Top-p alone of long rows, which takes fewer reads, draws what the general way draws."""

import numpy as np

from baracuda_py.ops.random.sampling import SamplingPlan
from baracuda_py.testing.places import call

V = 4200  # more than the columns by which lines are laid out


def rows() -> np.ndarray:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, V))
    x[1] = np.round(2 * x[1]) / 2  # many ties
    x[2] = 0.0
    x[3, -1] = 60.0  # far above the first columns, so that lines do not serve
    x[4, ::3], x[4, 1::3] = -np.inf, np.nan
    return x


def test_ids_and_logprobs_are_those_of_histograms(place: str) -> None:
    given = {"logits": rows(), "temperature": 0.8, "top_p": 0.9, "seed": 11, "offset": 3}
    found = []
    for top_n in (0, 1):  # to list the largest is more than top-p alone
        desc = SamplingPlan.descriptor(batch_size=5, vocab_size=V, element="float32", top_n=top_n)
        wanted = ("ids", "logprob", "top_ids")[: 2 + top_n]
        found.append(call(SamplingPlan, desc, wanted, place, **given))
    np.testing.assert_array_equal(found[0]["ids"], found[1]["ids"])
    np.testing.assert_array_equal(found[0]["logprob"], found[1]["logprob"])
