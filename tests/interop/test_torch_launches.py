"""What calls on torch tensors launch: the short way of prepared calls is the long one, in either layout.

Each test has shapes of its own, as what is prepared is kept by shape.
"""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py.testing import recording

torch = pytest.importorskip("torch")
from recorded_torch import Weight, on_gpu, pretend  # noqa: E402

from baracuda_py.backends.cuda.direct import Direct  # noqa: E402
from baracuda_py.ops.attention.rope.rope import PARAMS  # noqa: E402


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops of calls that no short path served, in order; each is learned from."""
    pretend(monkeypatch)
    seen: list[str] = []
    learn = Direct.learn

    def learned(self: Direct, arrays: Any) -> None:
        seen.append(self.runner.plan.op)
        learn(self, arrays)

    monkeypatch.setattr(Direct, "learn", learned)
    return seen


def tensor(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> Any:
    return on_gpu(torch.zeros(shape, dtype=dtype)).requires_grad_(grad)


def test_an_exchange_of_axes_is_in_the_strides_that_are_launched(long_ways: list[str]) -> None:
    x = tensor(2, 7, 3, 16)
    with recording() as record:
        y = bc.rope(x, layout="bshd")
        z = bc.rope(x, layout="bshd")
        bc.rope(x.swapaxes(1, 2), out=y.swapaxes(1, 2))
        bc.rope(tensor(2, 3, 7, 16))
    assert y.shape == x.shape and y.is_contiguous() and long_ways == ["attention.rope"] * 2
    learned, direct, viewed, dense = (launched.fields(PARAMS) for launched in record.launches)
    assert learned == viewed and learned["y"] == y.data_ptr() and learned["x"] == x.data_ptr()
    assert direct == learned | {"y": z.data_ptr()} and dense["strides"] != learned["strides"]


def test_other_strides_of_the_same_shape_are_looked_at_again(long_ways: list[str]) -> None:
    x, wide = tensor(2, 9, 3, 16), on_gpu(tensor(2, 9, 3, 32)[..., :16])
    with recording() as record:
        for one in (x, wide, x, wide):
            bc.rope(one, layout="bshd")
    assert len(long_ways) == 2
    first, second, third, fourth = (launched.fields(PARAMS)["strides"] for launched in record.launches)
    assert first == third != second == fourth


def test_a_parameter_beside_a_tensor_is_launched_as_a_tensor_is(long_ways: list[str]) -> None:
    x, weight = tensor(5, 1536), tensor(1536).as_subclass(Weight)
    with recording() as record:
        for operands in ((x, weight), (x, weight), (x, weight), (x, tensor(1536)), (x.as_subclass(Weight), weight)):
            bc.rms_norm(*operands)
    assert long_ways == ["norm.rms_norm"] * 3  # the first of each types
    assert len({(one.function.symbol, one.grid) for one in record.launches}) == 1 and len(record.launches) == 5


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_call_for_autograd_is_prepared_once(layout: str, long_ways: list[str]) -> None:
    shape = (2, 3, 64, 64) if layout == "bhsd" else (2, 64, 3, 64)
    q, k, v = (tensor(*shape, dtype=torch.float16, grad=True) for _ in range(3))
    runs, names = [], ["attention.flash_sdpa", "attention.flash_sdpa_backward"]
    with recording() as record:
        for _ in range(3):
            y = bc.flash_sdpa(q, k, v, layout=layout)
            assert y.requires_grad and y.shape == shape and y.is_contiguous()
            for g in torch.autograd.grad(y, (q, k, v), on_gpu(torch.zeros(shape, dtype=torch.float16))):
                assert g.shape == shape and g.is_contiguous()
            runs.append([(one.function.symbol, one.grid) for one in record.launches])
            record.launches.clear()
        assert long_ways == names and runs[0] == runs[1] == runs[2] and len(runs[0]) == 4
        way = on_gpu(torch.zeros(shape[::-1], dtype=torch.float16).permute(3, 2, 1, 0))  # strides of another order
        torch.autograd.grad(bc.flash_sdpa(q, k, v, layout=layout), (q, k, v), way)
        assert long_ways == names  # made dense, as the op takes it
        y = bc.flash_sdpa(on_gpu(q.detach()), k, on_gpu(v.detach()), layout=layout)
        torch.autograd.grad(y, k, on_gpu(torch.zeros_like(y)))
        assert long_ways == [*names, *names]  # of one operand alone


def test_workspace_is_taken_anew_in_each_call(long_ways: list[str]) -> None:
    x = tensor(1, 1 << 20)
    with recording() as record:
        for _ in range(3):
            bc.sum(x)
    assert long_ways == ["reduce.reduce"] and len(record.allocations) == 3


def test_without_grad_mode_nothing_is_recorded(long_ways: list[str]) -> None:
    x = tensor(5, 7, grad=True)
    with recording() as record:
        assert bc.silu(x).requires_grad
        with torch.no_grad():
            assert not bc.silu(x).requires_grad
        with torch.inference_mode():
            assert bc.silu(x).is_inference()
        assert bc.silu(x).requires_grad and not bc.silu(on_gpu(x.detach())).requires_grad
    assert len(record.launches) == 5
