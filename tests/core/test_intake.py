"""Single faults at the door: each is refused by its own typed error, before anything is used; what is right passes."""

from __future__ import annotations

import itertools
import logging
import pickle
import time
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan

import baracuda_py as bc
from baracuda_py.core import ArchSku, BackendKind, ElementKind, PlanPreference, TensorRef
from baracuda_py.core.checked import shown
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import (
    BaracudaError,
    BufferTooSmallError,
    DeviceMismatchError,
    InvalidProblemError,
    MisalignedOperandError,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.layouts import aligned_bytes

F32, INT64 = np.float32, 2**63 - 1


def label(value: Any) -> str:
    """A test's id: of any value, short, and the same in every process."""
    text = "object" if type(value) is object else shown(value)[:24]
    return text.encode("ascii", "backslashreplace").decode()


H100 = fake_device(9.0)


def off(shape: tuple[int, ...], dtype: Any, offset: int) -> np.ndarray:
    """An array `offset` bytes past a multiple of 256."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    made = np.ndarray(shape, dtype, aligned_bytes(size + 16).data, offset)
    made[...] = 0
    return made


def address(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


def null(shape: tuple[int, ...], dtype: Any = F32) -> Any:
    """A `cupy.ndarray` at address 0."""
    import cupy

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, size, None, 0), 0))


# --- pointers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "offset", "right"),
    [
        ("float32", 4, True), ("float32", 1, False), ("float32", 2, False), ("float64", 4, False), ("float64", 8, True),
        ("float16", 1, False), ("float16", 2, True), ("int8", 1, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: pointer_view(a)], ids=["host", "cuda"])
def test_a_pointer_is_a_multiple_of_its_item(dtype: str, offset: int, right: bool, wrap: Callable[..., Any]) -> None:
    host = isinstance(wrap(np.zeros(1)), np.ndarray)
    plan = bc.FillPlan.select(bc.FillDescriptor(shape=(4,), element=dtype), device="cpu" if host else H100)
    args = bc.FillArgs(x=wrap(off((4,), dtype, offset)), value=1)
    verdict = plan.can_implement(args)
    assert bool(verdict) is right
    if not right:
        assert isinstance(verdict.error, MisalignedOperandError) and "x is at address 0x" in verdict.reason
        for act in (plan.run, plan.bind, plan.prepare):
            with recording() as record, pytest.raises(MisalignedOperandError, match=f"{dtype}; copy it"):
                act(args)
            assert not record.launches


def test_a_prepared_layout_still_looks_at_every_pointer() -> None:
    """The steady path: null and misaligned pointers of a layout that has run before, in every position."""
    plan = bc.RMSNormPlan.select(
        bc.RMSNormDescriptor(batch_shape=(4,), normalized_shape=(8,), element="float32"), device=H100
    )
    right: dict[str, Any] = {"x": np.zeros((4, 8), F32), "weight": np.ones(8, F32), "y": np.zeros((4, 8), F32)}
    given = {name: pointer_view(a) for name, a in right.items()}
    with recording() as record:
        for _ in range(3):
            plan.run(bc.RMSNormArgs(**given))
        assert len(record.launches) == 3
        for name, a in right.items():
            with pytest.raises(InvalidProblemError, match=rf"{name} has shape .* but a null pointer"):
                plan.run(bc.RMSNormArgs(**given | {name: null(a.shape)}))
            for offset in (1, 2, 3):
                with pytest.raises(MisalignedOperandError, match=f"{name} is at address"):
                    plan.run(bc.RMSNormArgs(**given | {name: pointer_view(off(a.shape, F32, offset))}))
        assert len(record.launches) == 3
        plan.run(
            bc.RMSNormArgs(**given | {"x": pointer_view(off((4, 8), F32, 4))})
        )  # aligned to its item: a narrow row
        plan.run(bc.RMSNormArgs(**given | {"weight": None}))
        assert len(record.launches) == 5


def test_null_pointers_in_lists() -> None:
    desc = bc.GlobalNormDescriptor(shapes=((4,), (0,), (5,)), element="float32")
    plan = bc.GlobalNormPlan.select(desc, device=H100)
    items = [pointer_view(np.ones(4, F32)), null((0,)), pointer_view(np.ones(5, F32))]
    norm = pointer_view(np.zeros((), F32))
    with recording() as record:
        plan.run(bc.GlobalNormArgs(tensors=items, norm=norm))
        count = len(record.launches)
        assert count
        with pytest.raises(InvalidProblemError, match="null pointer"):
            plan.run(bc.GlobalNormArgs(tensors=[null((4,)), *items[1:]], norm=norm))
        assert len(record.launches) == count


def test_nothing_there_may_be_null() -> None:
    plan = AxpyPlan.select(AxpyDescriptor(shape=(0, 3), element="float32"), device=H100)
    with recording() as record:
        for _ in range(2):
            plan.run(AxpyArgs(x=null((0, 3)), y=null((0, 3)), alpha=1.0))
    assert not record.launches


def test_an_unaligned_numpy_array_is_refused_with_what_to_do() -> None:
    x = off((6,), F32, 1)
    assert not x.flags.aligned
    with pytest.raises(MisalignedOperandError, match=r"x is at address 0x.*, no multiple of the 4 bytes.*; copy it"):
        bc.exp(x)
    assert bc.exp(x.copy()).tolist() == [1.0] * 6


@pytest.mark.parametrize("value", ["pointer", "null"])
def test_scalars_on_the_device_are_looked_at_too(value: str) -> None:
    plan = AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), device=H100)
    x, y = pointer_view(np.ones(4, F32)), pointer_view(np.zeros(4, F32))
    alpha = null(()) if value == "null" else pointer_view(off((), F32, 2))
    kind = InvalidProblemError if value == "null" else MisalignedOperandError
    with recording() as record, pytest.raises(kind, match=r"^alpha "):
        plan.run(AxpyArgs(x=x, y=y, alpha=alpha))
    assert not record.launches


@pytest.mark.parametrize("step", [2**64, -(2**63) - 1, 10**400, 10**5000], ids=label)
def test_an_integer_that_a_launch_would_cut_off_is_refused_on_every_path(step: int) -> None:
    """The packed field keeps 64 bits; 2^64 would have become 0 on a layout that ran before."""
    plan = AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), device=H100)
    x, y = pointer_view(np.ones(4, F32)), pointer_view(np.zeros(4, F32))
    with recording() as record:
        for _ in range(2):
            with pytest.raises(InvalidProblemError, match="step must fit 64 bits"):
                plan.run(AxpyArgs(x=x, y=y, alpha=1.0, step=step))
            plan.run(AxpyArgs(x=x, y=y, alpha=1.0, step=2**64 - 1))
    assert len(record.launches) == 2


def test_a_float_beyond_float64_is_refused() -> None:
    y = np.zeros(4, F32)
    with pytest.raises(InvalidProblemError, match="alpha must fit a float64"):
        AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), device="cpu").run(
            AxpyArgs(x=np.ones(4, F32), y=y, alpha=10**400)
        )


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (lambda: null((8192,), np.uint8), InvalidProblemError, "null pointer"),
        (lambda: pointer_view(off((8192,), np.uint8, 1)), MisalignedOperandError, "256-byte aligned"),
        (lambda: pointer_view(np.zeros(8, np.uint8)), WorkspaceTooSmallError, "needs"),
        (lambda: pointer_view(np.broadcast_to(np.zeros(1, np.uint8), (8192,))), InvalidProblemError, "gaps"),
        (lambda: np.zeros(8192, np.uint8), DeviceMismatchError, "host memory"),
        (lambda: "4096", InvalidProblemError, "workspace must be an array"),
    ],
)
def test_a_workspace_is_dense_memory_of_its_own(made: Any, error: Any, says: str) -> None:
    plan = bc.FlashDecodingPlan.select(
        bc.FlashDecodingDescriptor(
            batch_size=1, num_heads=1, max_cache_len=4096, d_k=64, d_v=64, scale=1.0, element="float32"
        ),
        device=H100,
    )
    q, k = np.zeros((1, 1, 64), F32), np.zeros((1, 1, 4096, 64), F32)
    named = {"q": q, "k": k, "v": k.copy(), "lengths": np.ones(1, np.int32), "y": q.copy()}
    args = bc.FlashDecodingArgs(**{name: pointer_view(a) for name, a in named.items()})
    assert plan.workspace_size(args) > 8
    with recording() as record, pytest.raises(error, match=says):
        plan.run(args, made())
    assert not record.launches


# --- what a TensorRef is made of --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("ptr", -1, ">= 0|in \\["), ("ptr", 2**64, "in \\["), ("ptr", 1.5, "integer"), ("ptr", True, "integer"),
        ("ptr", None, "integer"), ("ptr", "0x10", "integer"), ("shape", (2.0, 3), "integer"),
        ("shape", (2, -3), ">= 0"),
        ("shape", (True, 3), "integer"), ("shape", "23", "tuple of sizes"), ("shape", 6, "tuple of sizes"),
        ("shape", {2, 3}, "tuple of sizes"), ("shape", (1,) * 33, "at most 32 axes"), ("shape", None, "tuple of sizes"),
        ("shape", itertools.count(), "at most 32 axes"), ("shape", (2**62, 4), "64 bits"), ("shape", b"ab", "tuple of"),
        ("strides", (1,), "2 extents but 1 strides"), ("strides", (2**62, 1), "64 bits"),
        ("strides", (0.5, 1), "integer"),
        ("strides", (2**70, 1), "integer of 64 bits"), ("strides", 3, "tuple of sizes"), ("device", -2, ">= -1|in \\["),
        ("device", "cuda:0", "integer"), ("device", 0.0, "integer"), ("nbytes", -1, ">= 0"), ("nbytes", 1.5, "integer"),
        ("element", "float99", "no element kind"), ("element", None, "no element kind"),
    ],
)  # fmt: skip
def test_a_tensor_ref_is_checked_when_it_is_made(field: str, value: Any, says: str) -> None:
    right = {"ptr": 0x1000, "shape": (2, 3), "strides": (3, 1), "element": "float32", "nbytes": 24, "device": 0}
    TensorRef(**right)
    with pytest.raises(BaracudaError, match=says):
        TensorRef(**right | {field: value})


def test_a_tensor_ref_stays_in_the_address_space() -> None:
    with pytest.raises(InvalidProblemError, match="reach out of memory"):
        TensorRef(2**64 - 8, (4,), None, "float32")
    with pytest.raises(InvalidProblemError, match="reach out of memory"):
        TensorRef(8, (4,), (-1,), "float32")
    with pytest.raises(InvalidProblemError, match="64 bits"):
        TensorRef(0x1000, (2**40, 2**40), (0, 0), "uint8")  # 2^80 elements of one byte
    assert TensorRef(2**64 - 16, (4,), None, "float32").ptr == 2**64 - 16
    assert TensorRef(0, (0, 5), None, "float32", 0).strides == (5, 1)


def test_a_tensor_ref_takes_integers_of_any_package() -> None:
    made = TensorRef(np.uint64(0x1000), [np.int64(2), np.uint8(3)], np.array([3, 1]), F32, np.int32(24), np.int8(-1))
    assert made == TensorRef(0x1000, (2, 3), (3, 1), ElementKind.F32, 24, -1)
    assert all(type(n) is int for n in (made.ptr, *made.shape, *made.strides, made.nbytes, made.device))
    with pytest.raises(BufferTooSmallError):
        TensorRef(0x1000, (2, 3), None, "float64", 24)


# --- preferences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "arch"),
    [
        ("sm80", ArchSku.SM80), ("sm_80", ArchSku.SM80), ("SM80", ArchSku.SM80), ("8.0", ArchSku.SM80),
        ("sm_89", ArchSku.SM89), ("8.9", ArchSku.SM89), ("sm_90a", ArchSku.SM90A), ("sm90", ArchSku.SM90A),
        ("9.0", ArchSku.SM90A), ("any", ArchSku.ANY), (ArchSku.SM89, ArchSku.SM89), (None, None),
    ],
)  # fmt: skip
def test_architectures_as_people_spell_them(given: Any, arch: Any) -> None:
    assert PlanPreference(max_arch=given).max_arch is arch


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("max_arch", "sm75", "'any', 'sm80', 'sm89', 'sm90a'"), ("max_arch", "", "sm80"), ("max_arch", 8.0, "sm80"),
        ("max_arch", ["sm80"], "sm80"), ("deterministic", "no", "True or False"), ("deterministic", 0, "True or False"),
        ("deterministic", None, "True or False"), ("batch_invariant", 1, "True or False"),
        ("prefer_backend", "BESPOKE", "bespoke"),
        ("prefer_backend", "magma", "bespoke"), ("prefer_backend", 1, "bespoke"), ("max_workspace_bytes", -1, ">= 0"),
        ("max_workspace_bytes", 1e6, "integer"), ("max_workspace_bytes", True, "integer"),
        ("max_workspace_bytes", 2**70, "64 bits"),
    ],
)  # fmt: skip
def test_a_preference_is_checked_when_it_is_made(field: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"{field} .*{says}"):
        PlanPreference(**{field: value})


def test_backends_by_name_select_what_their_members_do() -> None:
    asked = PlanPreference(prefer_backend="bespoke", max_workspace_bytes=np.int64(2**20), deterministic=np.bool_(False))
    assert asked == PlanPreference(prefer_backend=BackendKind.BESPOKE, max_workspace_bytes=2**20, deterministic=False)
    assert hash(asked) == hash(pickle.loads(pickle.dumps(asked)))
    desc = bc.RMSNormDescriptor(batch_shape=(4,), normalized_shape=(8,), element="float32")
    assert (
        bc.RMSNormPlan.select(desc, PlanPreference(prefer_backend="bespoke"), device=H100).sku.backend.value
        == "bespoke"
    )
    with pytest.raises(UnsupportedError, match="backend cublas was asked for"):
        bc.RMSNormPlan.select(desc, PlanPreference(prefer_backend="cublas"), device=H100)


@pytest.mark.parametrize("given", [{}, {"deterministic": False}, [], "", 0, False, "bespoke", PlanPreference])
def test_what_is_no_preference_is_refused(given: Any) -> None:
    x, y = np.ones(4, F32), np.full(4, 7, F32)
    for act in (
        lambda: AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), given, device="cpu"),
        lambda: bc.exp(x, out=y, preference=given),
    ):
        with pytest.raises(InvalidProblemError, match="preference must be a PlanPreference or None"):
            act()
    assert y.tolist() == [7] * 4


# --- descriptors ------------------------------------------------------------------------------------------------------


NO_SHAPES = (
    "8", "8,128", b"\x08", bytearray(b"\x08"), {8}, {8: 1}, None, 8.0, (8.0,), ("8",), True, (True,), (2**63,), (-1,),
    itertools.count(), (1,) * 33, np.array([[1, 2]]), 10**5000,
)  # fmt: skip


@pytest.mark.parametrize("value", NO_SHAPES, ids=label)
def test_what_is_no_shape_is_refused(value: Any) -> None:
    for make in (
        bc.FillDescriptor,
        lambda **facts: bc.RMSNormDescriptor(batch_shape=(), normalized_shape=facts["shape"], element="float32"),
    ):
        with pytest.raises(InvalidProblemError, match="shape "):
            make(shape=value, element="float32")
    with pytest.raises(InvalidProblemError, match=r"shapes\[1\]"):
        bc.GlobalNormDescriptor(shapes=((2,), value), element="float32")


@pytest.mark.parametrize("value", ["8", b"8", 8, None, True], ids=label)
def test_what_is_no_list_of_shapes_is_refused(value: Any) -> None:
    with pytest.raises(InvalidProblemError, match="shapes "):
        bc.GlobalNormDescriptor(shapes=value, element="float32")


@pytest.mark.parametrize("value", [8, np.int64(8), (8,), [8], np.array([8]), range(8, 9), (n for n in [8])], ids=label)
def test_what_is_a_shape_is_taken(value: Any) -> None:
    assert bc.FillDescriptor(shape=value, element="float32").shape == (8,)


@pytest.mark.parametrize("value", ["1e-5", b"1", True, np.bool_(True), None, 1j, 10**400, float("nan"), float("inf"),
                                   Decimal("NaN"), np.array([1e-5]), [1e-5], object()], ids=label)  # fmt: skip
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    with warnings.catch_warnings(), pytest.raises(InvalidProblemError, match="eps"):
        warnings.simplefilter("error")
        bc.RMSNormDescriptor(batch_shape=(4,), normalized_shape=(8,), element="float32", eps=value)


@pytest.mark.parametrize(
    "value", [0.25, F32(0.25), np.float16(0.25), Fraction(1, 4), Decimal("0.25"), np.array(0.25)], ids=label
)
def test_what_is_a_number_is_taken(value: Any) -> None:
    assert bc.RMSNormDescriptor(batch_shape=(4,), normalized_shape=(8,), element="float32", eps=value).eps == 0.25


HUGE = {
    bc.SdpaPlan: {"batch_size": 1, "num_heads": 1, "query_len": 4, "key_len": 8, "d_k": 8, "d_v": 8, "scale": 1.0},
    bc.SdpaBackwardPlan: {
        "batch_size": 1, "num_heads": 1, "query_len": 4, "key_len": 8, "d_k": 8, "d_v": 8, "scale": 1.0,
    },
    bc.RMSNormPlan: {"batch_shape": (4,), "normalized_shape": (8,)}, bc.FillPlan: {"shape": (4,)},
    bc.GlobalNormPlan: {"shapes": ((4,), (5,))}, bc.GemmPlan: {"m": 4, "n": 4, "k": 4},
}  # fmt: skip


@pytest.mark.parametrize("plan", HUGE, ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [2**40, 2**58, 2**62, INT64])
def test_a_huge_extent_is_answered_at_once(plan: Any, element: str, size: int) -> None:
    """An answer in whole Python integers or a typed error; `sdpa` cut a long sum into 2^52 pieces beforehand."""
    for field, value in HUGE[plan].items():
        if not isinstance(value, float):
            wide = size if isinstance(value, int) else ((size,),) if isinstance(value[0], tuple) else (size,)
            start = time.thread_time()
            try:
                chosen = plan.select(plan.descriptor(**HUGE[plan] | {field: wide}, element=element), device=H100)
                answer = chosen.workspace_size()
                assert type(answer) is int and 0 <= answer <= INT64, (field, answer)
            except BaracudaError as error:
                assert "64 bits" in str(error) or "more than" in str(error) or isinstance(error, UnsupportedError), (
                    error
                )
            # It took for ever; garbage of the tests before may be collected meanwhile, for a second and more.
            assert time.thread_time() - start < 5.0, field


# --- text -------------------------------------------------------------------------------------------------------------


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError


class Rude:
    def __repr__(self) -> str:
        raise Silent

    def __hash__(self) -> int:
        raise Silent

    @property
    def dtype(self) -> Any:
        raise Silent


@pytest.mark.parametrize("value", ["\ud800", "é\udfff", "x" * 10**6, 10**5000, Rude(), float("nan")], ids=label)
def test_every_message_can_be_printed(value: Any, caplog: Any, capsys: Any) -> None:
    for act in (
        lambda: bc.FillDescriptor(shape=value, element="float32"),
        lambda: bc.FillDescriptor(shape=(4,), element=value),
        lambda: bc.GatedActivationDescriptor(kind=value, shape=(4,), element="float32"),
        lambda: bc.flash_sdpa(*[np.zeros((1, 1, 4, 8), F32)] * 3, layout=value),
        lambda: AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), device=value),
        lambda: bc.exp(value),
        lambda: bc.cast(np.ones(4, F32), value),
    ):
        with pytest.raises(BaracudaError) as caught:
            act()
        message = str(caught.value)
        assert message.encode("utf-8").decode() == message and len(message) < 3000
        logging.getLogger("baracuda_py").error("%s", caught.value)
        print(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_text_of_a_caller_is_escaped_not_lost() -> None:
    error = InvalidProblemError("no \ud800 here, but é and 漢")
    assert str(error) == "no \\ud800 here, but é and 漢"
    assert shown(10**5000) == f"an integer of {(10**5000).bit_length()} bits" and "Rude" in shown(Rude())


def test_arguments_of_another_plan_or_none() -> None:
    plan = AxpyPlan.select(AxpyDescriptor(shape=(4,), element="float32"), device=H100)
    for args in (None, "x", [np.ones(4)], {"x": 1}, bc.UnaryArgs(x=np.ones(4), y=np.ones(4)), AxpyArgs):
        for act in (plan.run, plan.bind, plan.prepare, plan.workspace_size if args is not None else plan.run):
            with recording() as record, pytest.raises(InvalidProblemError, match="AxpyPlan takes AxpyArgs"):
                act(args)  # type: ignore[arg-type]
            assert not record.launches
        assert not plan.can_implement(args)  # type: ignore[arg-type]
