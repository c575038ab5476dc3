"""What the fuzz hands in: values no field means, arrays of every kind and fault, objects whose attributes raise."""

from __future__ import annotations

import enum
import functools
import importlib.util
import random
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from baracuda_py.core import ArchSku, BackendKind, ElementKind, PlanPreference, TensorRef
from baracuda_py.testing import pointer_view
from baracuda_py.testing.layouts import aligned_bytes

ERRORS: tuple[type[Exception], ...] = (ValueError, KeyError, RuntimeError, AttributeError, OverflowError, BufferError)


class Hostile:
    """Raises whenever it is looked at: attributes, conversions, comparison, hash, text."""

    def __init__(self, error: type[Exception] = ValueError) -> None:
        object.__setattr__(self, "_error", error)

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__", "__slots__"):
            return object.__getattribute__(self, name)
        raise object.__getattribute__(self, "_error")(f"no {name} \ud800")

    def _refuse(self, *_: Any) -> Any:
        raise object.__getattribute__(self, "_error")("hostile")

    __index__ = __int__ = __float__ = __len__ = __iter__ = __bool__ = __eq__ = __hash__ = __repr__ = __str__ = _refuse
    __getitem__ = __array__ = __lt__ = __gt__ = __contains__ = _refuse


class BadText(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Producer:
    """An array that is known only through DLPack, the CUDA array interface, or a broken form of either."""

    def __init__(self, array: np.ndarray, **facts: Any) -> None:
        self.array = array
        self.__dict__.update(facts)


class Dlpack(Producer):
    device: Any = (1, 0)
    error: Any = None

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)


def shuffled_dlpack(array: np.ndarray, rng: random.Random) -> Dlpack:
    """A DLPack producer that may raise anything, lie about its device, or answer nonsense."""
    errors = [None, None, *(e("producer") for e in ERRORS), BadText(), RecursionError("deep"), StopIteration()]
    places = [(1, 0), (1, 0), (1, 0), (2, 0), (13, 0), (10, 0), (99, 1), (), None, "cpu", ("a", 0), (2.5, 0)]
    return Dlpack(array, error=rng.choice(errors), device=rng.choice(places))


def shuffled_cai(array: np.ndarray, rng: random.Random) -> Any:
    """A CUDA array interface with an entry missing, of the wrong type, or out of range."""
    pointer = array.__array_interface__["data"][0]
    facts: Any = {
        "shape": array.shape, "typestr": array.dtype.str, "data": (pointer, False), "version": 3,
        "strides": rng.choice([None, array.strides]),
    }  # fmt: skip
    if rng.random() < 0.7:
        key, values = rng.choice(
            [
                ("shape", [None, 3, "12", (-1,), (2.0,), (True,), (2**62, 2**62), (1,) * 40, [*array.shape]]),
                ("typestr", [None, 4, ">f4", "f", "|V4", "|S3", "\ud800", np.dtype("f4"), [("a", "<f4")], "<M8[s]"]),
                ("data", [None, 5, (pointer,), (None, False), (-8, False), (2**64, False), ("x", False),
                          (pointer, "no"), (pointer + 1, False), (0, False), (0.5, False)]),
                ("strides", [(1,), (2**63,) * array.ndim, (3,) * array.ndim, "x", 4, (None,) * array.ndim]),
                ("mask", [array, True]),
                ("stream", [0, -1, "x", 1, 2]),
                ("version", [None, 2]),
            ]
        )  # fmt: skip
        facts[key] = rng.choice(values)
        if rng.random() < 0.3:
            del facts[key]
    if rng.random() < 0.05:
        facts = rng.choice([None, [], "x", 5])
    made = Producer(array)
    made.__dict__["__cuda_array_interface__"] = facts
    return made


def values() -> list[Any]:
    """What a descriptor's field, an attribute or a scalar may be given."""
    return [
        None, True, False, -1, 0, 1, 2, 3, 7, 64, -(2**63), 2**31, 2**62, 2**63, 2**64, 10**400, 10**5000, -0.0, 0.5,
        1.0, 1.5, 1e308, float("nan"), float("inf"), "", "x", "8", "8,128", "\ud800", "float32", "FLOAT32", ">f4",
        "f4,f4", "bshd", "BHSD", "silu", b"12", (), (3,), (2, 3), (-1,), (2.0,), ("a",), (True,), (2**62, 2), (1,) * 33,
        [4, 5], [[1, 2], [3]], ((1, 2), ()), {1, 2}, {"a": 1}, range(3), np.int64(3), np.uint8(200), np.float32(2),
        np.float64("nan"), np.bool_(True), np.str_("x"), np.array([1, 2]), np.array(3), np.array(0.5), np.array([1.5]),
        Decimal("NaN"), Decimal(2), Fraction(1, 3), 1j, ElementKind.F32, ElementKind.I8, np.float32, np.dtype("c8"),
        int, list, ArchSku.SM80, BackendKind.NUMPY, Hostile(), Hostile(KeyError), object(), Ellipsis, NotImplemented,
        lambda: 1,
    ]  # fmt: skip


VALUES = values()


# Identifiers that formulas take for operands, and that mean something to the code that is generated from them.
NAMES = (
    "self", "cls", "type", "args", "runner", "desc", "KIND", "RAW", "CACHE", "SELF", "NEW", "MISS", "UNSET", "RESULT",
    "key", "entry", "made", "symbol", "unknown", "given", "fields", "values", "value", "x_element", "x_shape", "p_x",
    "_type_x", "_dflt_x", "_return_type", "make_x", "return_x", "operand0", "operand1", "tuple", "getattr",
    "isinstance", "list", "print", "np", "i", "n", "j", "f", "p", "device", "dtype", "size", "rank", "text", "kind",
    "axis", "name",
    "float", "double", "int", "long", "half", "inline", "asm", "register", "template", "auto", "struct", "namespace",
    "operator", "volatile", "extern", "sizeof", "threadIdx", "blockIdx", "blockDim", "warpSize", "uint4", "NULL", "INF",
    "Formula", "Params", "math", "baracuda", "Vec", "T", "A", "L", "I", "x0", "y0", "s0", "v0", "u0", "r", "dy", "dx",
    "grad_x", "grad_y", "result_", "match", "case", "_", "_0", "Σ", "ünicode", "变量",
)  # fmt: skip
# What no operand can be called: words of every function here and of Python, and what is no identifier.
NOT_NAMES = (
    "out", "stream", "preference", "element", "shape", "workspace", "layout", "wrt", "wanted", "__init__", "__x",
    "lambda", "None", "in", "for", "", " ", "1x", "a b", "a.b", "a-b", "x;y", "\ud800", "x\n", "'", "#", "sum", "bool",
    "amax", "where",
)  # fmt: skip


def nearby(value: Any, rng: random.Random) -> Any:
    """A value of the same type, which may make a right problem of any size."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return rng.choice(list(type(value)))
    if isinstance(value, float):
        return rng.choice([0.0, 0.5, 1.0, -1.0, 1e-30, 1e300, 2, value])
    if isinstance(value, tuple):
        items = [nearby(item, rng) if rng.random() < 0.4 else item for item in value]
        return tuple(rng.choice([items, items, items[:-1], items * 2, [*items, 1]]))
    if isinstance(value, str):
        return rng.choice([value, value.upper(), "top_left", "bottom_right", "raw", "weights", "mean", "sum"])
    return rng.choice([0, 1, 2, 3, 4, 5, 8, 16, 33, 64, 128, 1000, 2**16, 2**31, 2**40, 2**62, 2**63 - 1, value, None])


def preferences() -> list[Callable[[], Any]]:
    """Makers of preferences: good ones, and arguments that a preference refuses."""
    made: list[Callable[[], Any]] = [lambda: None] * 4
    made += [lambda: PlanPreference(), lambda: PlanPreference(deterministic=False)]
    made += [lambda a=a: PlanPreference(max_arch=a) for a in ("sm80", "sm_89", "9.0", "SM90A", "sm75", 8.0, None)]
    made += [lambda b=b: PlanPreference(prefer_backend=b) for b in ("bespoke", "numpy", "CUBLAS", 3)]
    made += [lambda v=v: PlanPreference(max_workspace_bytes=v) for v in (0, 4096, -1, 1.5, True, 2**80)]
    made += [lambda v=v: PlanPreference(deterministic=v) for v in ("no", 0, None, np.bool_(False))]
    made += [lambda v=v: v for v in ({"deterministic": False}, [], "", 0, "bespoke", Hostile())]
    return made


PREFERENCES = preferences()


def faulty(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """A NumPy array like this one, but for a dtype, a shape, a stride, an address or a flag."""
    return rng.choice(_FAULTS)(array, rng)


DTYPES = ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "u2", "?", "c8", "c16", ">f4", "U2", "V8", "O", "M8[s]")


def _recast(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return np.zeros(array.shape, rng.choice(DTYPES))


def _moved(array: np.ndarray, rng: random.Random) -> np.ndarray:
    offset = rng.choice([1, 2, 4, 8])
    return np.ndarray(array.shape, array.dtype, aligned_bytes(array.nbytes + 8).data, offset)


def _reshaped(array: np.ndarray, rng: random.Random) -> np.ndarray:
    choices: list[tuple[int, ...]] = [
        (1, *array.shape),
        (*array.shape, 1),
        (*array.shape, 2),
        array.shape[1:],
        (),
        (0,),
    ]
    choices += [array.shape[::-1], tuple(n + 1 for n in array.shape), tuple(0 for _ in array.shape), (1,) * 33]
    return np.zeros(rng.choice(choices), array.dtype)


def _strided(array: np.ndarray, rng: random.Random) -> np.ndarray:
    if not array.ndim:
        return np.zeros(array.shape, array.dtype)
    if rng.random() < 0.3:
        return np.array(array, order="F")
    axis = rng.randrange(array.ndim)
    wide = np.zeros(tuple(n * (1 + (a == axis)) for a, n in enumerate(array.shape)), array.dtype)
    step = rng.choice([2, 2, -2])
    return wide[tuple(slice(None, None, step if a == axis else None) for a in range(array.ndim))]


def _folded(array: np.ndarray, rng: random.Random) -> np.ndarray:
    strides = tuple(0 if rng.random() < 0.5 else s for s in array.strides)
    return np.lib.stride_tricks.as_strided(np.array(array), array.shape, strides)


def _frozen(array: np.ndarray, rng: random.Random) -> np.ndarray:
    made = np.array(array)
    made.flags.writeable = False
    return made


def _subclass(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind = rng.choice([np.recarray, np.memmap, np.matrix, np.ndarray, np.ma.MaskedArray])
    if kind is np.matrix and array.ndim != 2:
        return np.ma.masked if rng.random() < 0.5 else np.ma.masked_array(array, np.zeros(array.shape, bool))
    return np.array(array).view(kind)


def _swapped(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return np.zeros(array.shape, array.dtype.newbyteorder()) if array.dtype.kind in "iufc" else _recast(array, rng)


_FAULTS = [_recast, _moved, _moved, _reshaped, _reshaped, _strided, _strided, _folded, _frozen, _subclass, _swapped]


def ref(array: np.ndarray, rng: random.Random, device: int) -> TensorRef:
    """A TensorRef to the array, mostly right, else with one argument off. Addresses that are used stay right."""
    pointer = array.__array_interface__["data"][0]
    strides = tuple(s // array.itemsize for s in array.strides)
    facts: dict[str, Any] = {
        "ptr": pointer, "shape": array.shape, "strides": strides, "element": array.dtype, "device": device,
    }  # fmt: skip
    name, wrong = rng.choice(
        [
            ("ptr", [0, -1, 1.5, None, 2**64, True, "x"]),
            ("shape", [5, (2.0,), (-1,), (True,), (1,) * 40, None, "23"]),
            ("strides", [(1,) * 9, (2**63,) * array.ndim, (0.5,) * array.ndim, "x", 3]),
            ("element", ["nope", None, 3, "float99"]),
            ("device", [7, -2, 1.5, "cuda:0", None, 1 - device]),
            ("nbytes", [0, -1, 1.5, "x"]),
            ("nbytes", [array.nbytes, None]),
            ("ptr", [np.uint64(pointer)]),
        ]
    )
    facts[name] = rng.choice(wrong)
    return TensorRef(**facts)


@functools.cache
def subclasses() -> tuple[type, type]:
    """Subclasses of torch.Tensor: one that does nothing, one that raises whatever is done with it."""
    import torch

    class Hooked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise KeyError("hooked")

    return type("Sub", (torch.Tensor,), {}), Hooked


def torch_tensors(array: np.ndarray) -> Iterator[Callable[[], Any]]:
    """Makers of torch tensors like the array: plain, with a bit or a flag, of another layout or device, subclasses."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    def plain() -> Any:
        if array.dtype.isbuiltin == 1:
            return torch.from_numpy(np.array(array))
        return torch.from_numpy(np.array(array).view(f"i{array.itemsize}")).view(getattr(torch, str(array.dtype)))

    sub, hooked = subclasses()
    yield from [plain] * 6
    yield lambda: plain().to("meta")
    yield lambda: plain().as_subclass(sub)
    yield lambda: plain().as_subclass(hooked)
    yield lambda: plain().t() if array.ndim == 2 else plain()
    yield lambda: plain().expand(3, *array.shape)
    yield lambda: plain().to_sparse()
    if array.dtype.kind == "f":
        yield lambda: plain().requires_grad_()
        yield lambda: torch.nn.Parameter(plain())
        yield lambda: torch._neg_view(plain())
        yield lambda: torch.nested.nested_tensor([plain(), plain()])
        yield lambda: plain().float().to_mkldnn()
        yield lambda: torch.quantize_per_tensor(plain().float(), 0.1, 0, torch.quint8)
    if array.dtype.kind == "c":
        yield lambda: plain().conj()


def fake_tensor() -> Any:
    """torch's FakeTensor, made once: it takes milliseconds."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with warnings.catch_warnings(), FakeTensorMode():
        warnings.simplefilter("ignore")
        return torch.zeros(3)


def operand(array: np.ndarray, others: list[np.ndarray], rng: random.Random, device: int, cuda: bool = True) -> Any:
    """A maker's result: an operand in place of `array` for a plan on `device` (-1: the host).

    `others` are the call's own arrays, to overlap with. Without `cuda` nothing claims to be on a CUDA device.
    """

    def wrap(a: Any) -> Any:
        if device < 0 or not isinstance(a, np.ndarray) or a.dtype.kind not in "iufcb" or not a.dtype.isnative:
            return a
        return pointer_view(a, device)

    pick = rng.random()
    if pick < 0.12:
        return rng.choice([*VALUES, *(array.tolist(), [array], (array, array), str(array), array.dtype, type(array))])
    if pick < 0.42:
        return wrap(faulty(array, rng))
    if pick < 0.52:
        other = rng.choice(others)
        return wrap(other if rng.random() < 0.6 else other[..., :1] if other.ndim else other)
    if pick < 0.62:
        return ref(array, rng, device)
    if pick < 0.70 and cuda:
        return shuffled_cai(array, rng)
    if pick < 0.78:
        made = shuffled_dlpack(array, rng)
        return made if cuda else Dlpack(array, error=made.error)
    if pick < 0.88 and array.ndim < 6:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of what is beta
            makers = list(torch_tensors(array))
            try:
                return rng.choice(makers)() if makers else array
            except (RuntimeError, TypeError, NotImplementedError, AttributeError):
                return array  # torch has no such tensor
    if pick < 0.94 and cuda:
        return array if device >= 0 else pointer_view(array, rng.choice([0, 1]))
    return wrap(np.array(array))
