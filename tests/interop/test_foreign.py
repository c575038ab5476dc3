"""Arrays of other packages: interfaces with faults, producers that raise, subclasses, tensors without memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import ElementKind, arrays
from baracuda_py.core.arrays import located, read, to_numpy
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from baracuda_py.testing import pointer_view, recording

F32 = np.float32
H100 = fake_device(9.0)


def address(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError


class Cai:
    """Known only through the CUDA array interface."""

    def __init__(self, **changes: Any) -> None:
        self.array = np.zeros((2, 4), F32)
        facts: Any = {
            "shape": (2, 4), "typestr": "<f4", "data": (address(self.array), False), "version": 3, "strides": None,
            "stream": None,
        }  # fmt: skip
        facts |= changes
        self.__cuda_array_interface__ = {k: v for k, v in facts.items() if v is not ...}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": ...}, "lacks shape"), ({"typestr": ...}, "lacks typestr"), ({"data": ...}, "lacks data"),
        ({"version": ..., "data": ...}, "lacks data, version"), ({"mask": np.ones(8)}, "mask"), ({"shape": 8}, "tuple"),
        ({"shape": "24"}, "tuple"), ({"shape": (2, -4)}, ">= 0"), ({"shape": (2.0, 4)}, "integer"),
        ({"shape": (1,) * 33}, "32 axes"), ({"shape": (2**62, 2**62)}, "64 bits"), ({"strides": (4,)}, "1 strides"),
        ({"strides": (16, 6)}, "6 bytes"), ({"strides": (2**63 - 4, 4)}, "64 bits"), ({"strides": "ab"}, "tuple"),
        ({"strides": (16, None)}, "integer"), ({"typestr": ">f4"}, "swapped"), ({"typestr": "|V4"}, "no element kind"),
        ({"typestr": "<M8[s]"}, "no element kind"), ({"typestr": "nonsense"}, "cannot be read"),
        ({"typestr": np.dtype("f4")}, "typestr must be a string"), ({"typestr": "\ud800"}, "cannot be read"),
        ({"data": 4096}, "data must be a tuple"), ({"data": (4096,)}, "data must be a tuple"),
        ({"data": (4096, "no")}, "data must be a tuple"), ({"data": (-4096, False)}, "pointer"),
        ({"data": (2**64, False)}, "pointer"), ({"data": ("4096", False)}, "pointer"), ({"data": None}, "data must be"),
        ({"data": (2**64 - 8, False)}, "out of memory"), ({"stream": -1}, "stream"), ({"stream": "x"}, "stream"),
    ],
)  # fmt: skip
def test_a_broken_cuda_array_interface_is_refused_by_name(changes: Any, says: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(arrays, "_device_of", lambda pointer: 0)
    assert read(Cai()).shape == (2, 4)
    with pytest.raises(BaracudaError, match=f"^x: .*{says}"):
        read(Cai(**changes), "x")


@pytest.mark.parametrize("facts", [None, 5, [], "x"])
def test_an_interface_that_is_no_dict(facts: Any) -> None:
    thing = Cai()
    thing.__cuda_array_interface__ = facts
    with pytest.raises(InvalidProblemError, match="x: __cuda_array_interface__ must be a dict"):
        read(thing, "x")


class Dlpack:
    """Known only through DLPack."""

    def __init__(self, error: BaseException | None = None, device: Any = (1, 0)) -> None:
        self.array = np.arange(4, dtype=F32)
        self.error, self.device, self.asked = error, device, 0

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)


ERRORS = (
    ValueError("v"), KeyError("k"), AttributeError(), RuntimeError("r"), BufferError("b"), AssertionError(), Silent(),
    RecursionError(), StopIteration(), OSError(), Warning("w"), UnicodeDecodeError("utf-8", b"x", 0, 1, "u"),
)  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_producer_raises_is_ours_and_names_the_operand(error: Exception) -> None:
    y = np.full(4, 7, F32)
    with pytest.raises(InvalidProblemError, match=r"^x: ") as caught:
        bc.exp(Dlpack(error), out=y)
    assert caught.value.__cause__ is error and y.tolist() == [7] * 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MemoryError()])
def test_what_is_meant_for_the_process_passes(error: BaseException) -> None:
    with pytest.raises(type(error)):
        bc.exp(Dlpack(error))


@pytest.mark.parametrize(
    ("device", "says"), [((10, 0), "DLPack type 10"), (None, "cannot be read"), ((), "cannot be read")]
)
def test_devices_nobody_reads(device: Any, says: str) -> None:
    with pytest.raises(BaracudaError, match=f"x: .*{says}"):
        read(Dlpack(device=device), "x")


def test_a_producer_of_the_host_is_read_without_cupy_and_asked_once() -> None:
    x, y = Dlpack(), np.zeros(4, F32)
    plan = bc.UnaryPlan.select(bc.UnaryDescriptor(kind="neg", shape=(4,), element="float32"), device="cpu")
    plan.run(bc.UnaryArgs(x=x, y=y))
    assert y.tolist() == [0, -1, -2, -3] and x.asked == 1


class Raising:
    """An object whose every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


NO_ARRAYS = (Raising(), [1.0], (1.0,), {}, None, "abc", np.float32(1), object(), lambda: 0, Ellipsis)


@pytest.mark.parametrize("thing", NO_ARRAYS, ids=lambda thing: type(thing).__name__)
def test_what_is_no_array_is_refused_everywhere(thing: Any) -> None:
    x, y = np.ones(1, F32), np.full(1, 7, F32)
    plan = bc.UnaryPlan.select(bc.UnaryDescriptor(kind="neg", shape=(1,), element="float32"), device="cpu")
    fake = bc.UnaryPlan.select(bc.UnaryDescriptor(kind="neg", shape=(1,), element="float32"), device=H100)
    with recording() as record:
        for act in (
            lambda: bc.neg(thing, out=y),
            lambda: plan.run(bc.UnaryArgs(x=thing, y=y)),
            lambda: fake.run(bc.UnaryArgs(x=thing, y=pointer_view(y))),
            lambda: fake.run(bc.UnaryArgs(x=pointer_view(x), y=thing)),
            lambda: fake.run(thing),
            lambda: plan.run(thing),
        ):
            with pytest.raises(InvalidProblemError):
                act()
    assert y.tolist() == [7] and not record.launches


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: np.ma.masked_array(np.ones(4, F32), [0, 1, 0, 0]), "mask"), (lambda: np.ma.masked, "mask"),
        (lambda: np.ones(4, ">f4"), "bytes are swapped"), (lambda: np.ones(4, "U3"), "no element kind"),
        (lambda: np.ones(4, [("a", "f4"), ("b", "i4")]), "no element kind"), (lambda: np.ones(4, object), "no element"),
        (lambda: np.ones((1,) * 33, F32), "33 axes"), (lambda: np.ones(4, np.longdouble), "no element kind"),
    ],
)  # fmt: skip
def test_numpy_arrays_nobody_computes_with(made: Any, says: str) -> None:
    for act in (lambda: bc.neg(made()), lambda: bc.neg(np.ones(4, F32), out=made())):
        with pytest.raises(BaracudaError, match=says):
            act()


def test_numpy_arrays_of_another_kind_are_seen_as_what_they_hold(tmp_path: Any) -> None:
    for made in (np.matrix([[1.0, -2.0]]), np.array([[1.0, -2.0]]).view(np.recarray)):
        assert bc.neg(made).tolist() == [[-1.0, 2.0]]
        bc.neg(np.array(made), out=made)
        assert np.asarray(made).tolist() == [[-1.0, 2.0]]
    mapped = np.memmap(tmp_path / "x", F32, "w+", shape=(3,))
    bc.neg(np.ones(3, F32), out=mapped)
    assert mapped.tolist() == [-1.0] * 3 and type(to_numpy(mapped)) is np.ndarray
    with pytest.raises(InvalidProblemError, match="y is read-only"):
        bc.neg(np.ones(3, F32), out=np.broadcast_to(np.zeros(1, F32), (3,)))
    signalling = np.array([0x7FA00000, 0x3F800000], np.uint32).view(F32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(bc.neg(signalling)[0]) and bc.neg(signalling)[1] == -1


torch = pytest.importorskip("torch")


class Plain(torch.Tensor):
    pass


class Hooked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise LookupError("hooked")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "nested torch tensor"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged), "NestedTensor"),
        (lambda: torch.eye(3).to_sparse(), "layout torch.sparse_coo"), (lambda: torch.zeros(3).to_mkldnn(), "mkldnn"),
        (lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8), "no element kind for torch.quint8"),
        (lambda: torch.zeros(3).as_subclass(Hooked), "a Hooked cannot be read .LookupError: hooked"),
        (lambda: torch.zeros((1,) * 40), "40 axes"),
    ],
)  # fmt: skip
def test_torch_tensors_are_refused_for_what_they_are(made: Any, says: str) -> None:
    for _ in range(2):  # the second call of a shape takes the short way
        bc.neg(torch.zeros(3)), bc.neg(torch.zeros(3, 3))
    with pytest.raises(BaracudaError, match=says) as caught:
        bc.neg(made())
    assert "CuPy" not in str(caught.value)


def test_a_tensor_under_vmap_has_no_memory() -> None:
    with pytest.raises(UnsupportedError, match="x: the torch tensor belongs to a transformation"):
        torch.vmap(lambda x: located(x, "x"))(torch.ones(2, 3))


def test_a_torch_subclass_that_changes_nothing_is_a_tensor() -> None:
    result = bc.neg(torch.ones(3).as_subclass(Plain))
    assert isinstance(result, torch.Tensor) and result.tolist() == [-1.0] * 3
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16):
        assert read(torch.ones(3).to(kind)).element is ElementKind.of(kind)
        assert to_numpy(torch.ones(3).to(kind)).astype(F32).tolist() == [1.0] * 3
