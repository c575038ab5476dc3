"""Which operands of attention are copied in pieces of 16 bytes."""

from __future__ import annotations

import pytest

from baracuda_py.core import ElementKind
from baracuda_py.core.tensor import View
from baracuda_py.schedules.attention.dense.forward import wide


@pytest.mark.parametrize(
    ("ptr", "shape", "strides", "fits"),
    [
        (256, (2, 3, 5, 64), (960, 320, 64, 1), True),
        (264, (2, 3, 5, 64), (960, 320, 64, 1), False),
        (256, (2, 3, 5, 60), (960, 320, 64, 1), False),
        (256, (2, 3, 5, 64), (960, 320, 68, 1), False),
        (256, (1, 1, 1, 64), (0, 0, 0, 1), True),
        (256, (2, 3, 1, 64), (192, 64, 9, 1), False),  # rows past the only one have addresses too
    ],
)
def test_rows_and_those_past_them_start_at_pieces(
    ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], fits: bool
) -> None:
    view = View(ptr, shape, strides, ElementKind.BF16)
    assert wide(None, view) == (2 if fits else 0)
