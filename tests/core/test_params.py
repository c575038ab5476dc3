"""Parameter structs: what Python packs is what `ctypes` and the compiler lay out."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baracuda_py.core import Params
from baracuda_py.core.errors import CompileError
from baracuda_py.jit import Unit, compile_unit, nvrtc

CTYPES = {
    "ptr": ctypes.c_uint64, "workspace": ctypes.c_uint64, "status": ctypes.c_uint64, "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64, "f64": ctypes.c_double, "i32": ctypes.c_int32, "u32": ctypes.c_uint32,
    "f32": ctypes.c_float,
}  # fmt: skip
KINDS = ["ptr", "workspace", "status", "scalar", "iscalar", "i64", "u64", "f64", "i32", "u32", "f32"]
SHAPES = st.sampled_from(["", "[2]", "[3][2]"])


def declared(fields: list[tuple[str, str]]) -> Params:
    return Params("Sample", **{
        f"field{i}": kind + (dims if kind not in ("scalar", "iscalar", "workspace", "status") else "")
        for i, (kind, dims) in enumerate(fields)
    })  # fmt: skip


FIELDS = st.lists(st.tuples(st.sampled_from(KINDS), SHAPES), max_size=12).map(declared)


def mirror(params: Params) -> Any:
    """A ctypes structure with the same fields, in the same order, laid out by C's rules."""
    fields = [(s.name, CTYPES[s.kind] * s.count if s.extents else CTYPES[s.kind]) for s in params.slots.values()]
    return type("Mirror", (ctypes.Structure,), {"_fields_": fields})


@given(FIELDS)
def test_offsets_are_those_of_c(params: Params) -> None:
    twin = mirror(params)
    for slot in params.slots.values():
        assert getattr(twin, slot.name).offset == slot.offset, slot
    assert params.size == max(8, -(-ctypes.sizeof(twin) // 8) * 8)
    assert params.pointer_struct.size == 8 * sum(s.count for s in params.pointers)


@given(FIELDS, st.integers(0, 2**16))
def test_packed_constants_read_back(params: Params, seed: int) -> None:
    values: dict[str, Any] = {}
    for i, slot in enumerate(params.slots.values()):
        if slot.kind in CTYPES and slot.kind not in ("ptr", "workspace", "status") and not params._is_scalar(slot):
            flat = [(seed + i + j) % 1000 for j in range(slot.count)]
            values[slot.name] = flat if slot.extents else flat[0]
    twin = mirror(params).from_buffer_copy(bytes(params.template(values)).ljust(ctypes.sizeof(mirror(params)), b"\0"))
    for name, value in values.items():
        got = getattr(twin, name)
        assert (list(got) if isinstance(value, list) else got) == value


def test_nested_values_negative_numbers_and_short_arrays() -> None:
    params = Params("P", strides="i64[2][3]", low="i32", scale="f32", wide="u64", x="ptr")
    image = params.template({"strides": [[1, 2, 3], [-4, 5, 6]], "low": -7, "scale": 0.1, "wide": 2**64 - 1})
    fields = params.slots
    assert struct.unpack_from("<6q", image, fields["strides"].offset) == (1, 2, 3, -4, 5, 6)
    assert struct.unpack_from("<i", image, fields["low"].offset) == (-7,)
    assert struct.unpack_from("<f", image, fields["scale"].offset)[0] == pytest.approx(0.1, rel=1e-7)
    assert struct.unpack_from("<Q", image, fields["wide"].offset) == (2**64 - 1,)
    assert image[:8] == b"\0" * 8  # the pointer


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "left ['n', 'dims'] unset"),
        ({"n": 1, "dims": [1], "m": 2}, "gave unknown ['m']"),
        ({"n": 1, "dims": [1, 2, 3]}, "P.dims holds 2 values, got 3"),
    ],
)
def test_geometry_that_disagrees_with_the_page_is_told(values: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        Params("P", x="ptr", n="i64", dims="i32[2]").template(values)
    assert says in str(caught.value)


def test_a_declaration_must_make_sense() -> None:
    with pytest.raises(TypeError, match="unknown kind"):
        Params("P", n="i16")
    with pytest.raises(TypeError, match="kernel parameters end at 4096"):
        Params("P", big="i64[600]")
    assert Params("P", big="i64[512]").size == 4096
    assert Params("P").size == 8


@pytest.fixture(scope="module")
def compiler() -> None:
    try:
        nvrtc.load()
    except CompileError as error:
        pytest.skip(f"struct layouts were not compiled: {error}")


def test_the_compiler_agrees(compiler: None) -> None:
    """Thirty random structs in one unit: the generated static_assert compares sizes, prefixes of them the offsets."""
    rng = np.random.default_rng(1)
    parts = ["#include <baracuda/types.cuh>", "#include <baracuda/scalar.cuh>", "namespace baracuda {"]
    for i in range(30):
        fields = [
            (KINDS[rng.integers(len(KINDS))], ["", "[2]", "[3][2]"][rng.integers(3)]) for _ in range(rng.integers(12))
        ]
        params = declared(fields)
        params.name = f"Sample{i}"
        parts.append(params.cpp)
        before: list[str] = []
        wide = False
        for slot in params.slots.values():  # what stands before a field is as large as the field's offset says
            if before:
                size = -(-slot.offset // 8) * 8 if wide else slot.offset
                parts.append(f"struct Before{i}_{slot.name} {{ {' '.join(before)} }};")
                parts.append(f'static_assert(sizeof(Before{i}_{slot.name}) == {size}, "{slot.name}");')
            dims = "".join(f"[{e}]" for e in slot.extents)
            ctype = {"f32": "float", "i32": "int", "u32": "unsigned", "f64": "double"}.get(slot.kind, "long long")
            before.append(f"{ctype} {slot.name}{dims};")
            wide = wide or ctype in ("long long", "double")
    parts += ["}", 'extern "C" __global__ void entry() {}', ""]
    compile_unit(Unit("params", "\n".join(parts), symbols=("entry",)), "sm_80")


def test_a_wrong_size_does_not_compile(compiler: None) -> None:
    params = Params("Sample", x="ptr", n="i64")
    params.size += 8
    text = "#include <baracuda/types.cuh>\n" + params.cpp.replace("char padding_[8];", "")
    with pytest.raises(CompileError, match="Sample and its page disagree"):
        compile_unit(Unit("params", text + 'extern "C" __global__ void entry() {}\n', symbols=("entry",)), "sm_80")
