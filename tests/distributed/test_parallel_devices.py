"""Layers of one rank on devices that are not there: each call finds a row, and all is made and launched there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from baracuda_py import distributed as D
from tests.interop.second_device import STREAM, Devices, spread, two_devices

pytest.importorskip("cupy")


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    with two_devices(monkeypatch) as found:
        yield found


def numbers(*shape: int, element: str = "float16") -> np.ndarray:
    return np.ones(shape, element)


X, W, B, DY = numbers(4, 6, 64), numbers(128, 64), numbers(128), numbers(4, 6, 128)
AIMS = np.zeros((4, 6), np.int64)
WIDE = [numbers(9, 4, element="float32"), numbers(5, element="float32")]
STATES = [numbers(64, element="float32") for _ in range(2)]
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "row": (D.row_parallel_linear, [X, W, B], {}),
    "row_bare": (D.row_parallel_linear, [X, W], {}),
    "row_backward": (D.row_parallel_linear_backward, [DY, X, W, B], {"dweight_element": "float32"}),
    "column": (D.column_parallel_linear, [X, W, B], {"gather_output": True}),
    "column_backward": (D.column_parallel_linear_backward, [DY, X, W, B], {}),
    "embedding": (D.vocab_parallel_embedding, [AIMS, W], {}),
    "embedding_backward": (D.vocab_parallel_embedding_backward, [X, AIMS, W], {"dweight_element": "float32"}),
    "loss": (
        D.vocab_parallel_cross_entropy, [DY, AIMS],
        {"label_smoothing": 0.1, "z_loss": 0.1, "return_lse": True, "return_dlogits": True},
    ),
    "linear_loss": (
        D.vocab_parallel_linear_cross_entropy, [X, W, AIMS, B],
        {"z_loss": 0.1, "return_lse": True, "return_dx": True, "return_dweight": True, "return_dbias": True},
    ),
    "adam": (D.distributed_adam_step, [WIDE, WIDE, *STATES], {"step": 1}),
    "adam_masters": (
        D.distributed_adam_step, [[X], [X[..., :1].repeat(64, 2)], *(numbers(1536, element="float32") for _ in "mv")],
        {"step": 1, "master": numbers(1536, element="float32")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_all_is_made_and_launched_where_the_operands_are(case: str, devices: Devices) -> None:
    function, operands, facts = CASES[case]
    for here, there, stream in ((0, 1, None), (0, 1, 0x777), (1, 0, None)):
        devices.use(here)
        devices.forget()
        held, options = devices.array([operands, facts], there)
        made = function(*held, **options, **({} if stream is None else {"stream": stream}))
        assert devices.current == here
        assert {a.data.device_id for a in spread(made)} <= {there}
        assert devices.places() <= {(there, STREAM + there if stream is None else stream)}
