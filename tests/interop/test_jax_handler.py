"""The custom call of baracuda_py.jax: XLA's frames, texts that name problems, errors, processes."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")


import baracuda_py as bc
from baracuda_py.core import ElementKind
from baracuda_py.jax import c_api, problem, staging, target
from baracuda_py.jax.primitive import primitive
from baracuda_py.jax.problem import Buffer, Call, Problem, key_of, problem_of
from baracuda_py.testing import recording
from tests.interop.in_jax import PLANS, in_jax, jax, problems

bj = bc.jax
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _on_the_host() -> Any:
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def exp_of(*shape: int, element: ElementKind = ElementKind.F32) -> Problem:
    buffer = Buffer(shape, element)
    desc = bc.UnaryDescriptor(kind="exp", shape=shape, element=element)
    return Problem(bc.UnaryPlan, desc, (("x", (buffer,)), ("y", (buffer,))))


# -- frames -----------------------------------------------------------------------------------------------------------


class Fake:
    """A call frame as XLA lays it out, with a table of functions that records errors."""

    def __init__(self, key: bytes = b"", arrays: Any = (), results: Any = (), major: int = 0, size: int = 168) -> None:
        self.errors: list[bytes] = []
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._error)
        functions = [ctypes.cast(create, ctypes.c_void_p).value, *(0,) * 17]
        api = self._held(struct.pack("<2Q2Q2iQ18Q", 192, 0, 24, 0, major, 3, 0, *functions))
        text = self._held(struct.pack("<2Q", self._held(key), len(key)))
        lists = [(40, 0, len(items), 0, self._buffers(items)) for items in (arrays, results)]
        self.raw = struct.pack(
            "<4Qi4x2Qq2Q2Qq2Q2Qq3Q", size, 0, api, 0, 3, *lists[0], *lists[1], 48, 0, 1, 0, 0,
            self._held(struct.pack("<Q", text)),
        )  # fmt: skip
        self.keep = (create,)
        self.address = self._held(self.raw)

    def _held(self, data: bytes) -> int:
        memory = ctypes.create_string_buffer(data, len(data) + 8)
        self.__dict__.setdefault("memory", []).append(memory)
        return ctypes.addressof(memory)

    def _buffers(self, arrays: Any) -> int:
        dims = [self._held(struct.pack(f"<{a.ndim}q", *a.shape)) for a in arrays]
        made = [
            self._held(struct.pack("<2Qi4x3Q", 48, 0, 11, a.ctypes.data, a.ndim, d))
            for a, d in zip(arrays, dims, strict=True)
        ]
        return self._held(struct.pack(f"<{len(made)}Q", *made))

    def _error(self, given: int) -> int:
        message = struct.unpack_from("<Q", ctypes.string_at(given, 28), 16)[0]
        self.errors.append(ctypes.string_at(message))
        return 7


def test_a_frame_is_read_and_run() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    frame = Fake(key_of(exp_of(2, 3)), [x], [y])
    read = c_api.read_frame(frame.address)
    assert (read.inputs, read.outputs, read.stage) == ([x.ctypes.data], [y.ctypes.data], c_api.EXECUTE)
    assert target._handler(target._on_host, 0)(frame.address) in (0, None) and not frame.errors
    assert np.array_equal(y, bc.exp(x))


@pytest.mark.parametrize(("major", "size"), [(1, 168), (0, 160)])
def test_an_unknown_layout_is_refused(major: int, size: int) -> None:
    c_api.expect(Fake().address, [], [])
    with pytest.raises(bc.UnsupportedError, match=r"foreign function interface .* is not the known 0\.3"):
        c_api.expect(Fake(major=major, size=size).address, [], [])


def test_buffers_that_were_not_declared_are_refused() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    for wrong in (exp_of(3, 2), exp_of(2, 3, element=ElementKind.F64), exp_of(6)):
        frame = Fake(key_of(wrong), [x], [y])
        assert target._handler(target._on_host, 0)(frame.address) == 7
        assert b"XLA gives inputs [(11, (2, 3))] (XLA_FFI_DataType, shape) where" in frame.errors[0]


def test_the_header_says_the_version(tmp_path: Path) -> None:
    assert c_api.version(jax.ffi.include_dir())[0] == 0
    header = tmp_path / "xla/ffi/api/c_api.h"
    with pytest.raises(bc.UnsupportedError, match="no header that says the version"):
        c_api.version(str(tmp_path))
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 1\n#define XLA_FFI_API_MINOR 0\n")
    with pytest.raises(bc.UnsupportedError, match=r"interface 1\.0 of this jaxlib is not known; 0\.x is"):
        c_api.version(str(tmp_path))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("naïve \udc80"), bc.InvalidProblemError("no")])
def test_no_exception_reaches_xla(error: BaseException) -> None:
    def fail(frame: Any) -> None:
        raise error

    frame = Fake(b"x")
    assert target._handler(fail, 0)(frame.address) == 7
    assert frame.errors[0].decode().startswith(f"baracuda_py: {type(error).__name__}: ")


def test_errors_while_running_are_those_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    x, index = jnp.ones((4, 3)), jnp.array([[9, 0, 0]])
    function = jax.jit(lambda x, i: bj.gather(x, i, axis=0))
    function(x, index).block_until_ready()
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    said = r"baracuda_py: InvalidProblemError: indexing\.gather: an index must lie in \[-4, 4\)"
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=said):
        function(x, index).block_until_ready()
    monkeypatch.delenv("BARACUDA_CHECK")
    function(x, index).block_until_ready()


# -- problems as text -------------------------------------------------------------------------------------------------


def test_problems_are_found_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    one = exp_of(2, 3)
    assert key_of(one) == key_of(exp_of(2, 3)) != key_of(exp_of(3, 2)) and b'"kind":"exp"' in key_of(one)
    monkeypatch.setattr(problem, "_known", {})
    assert problem_of(key_of(one)) == one  # as in another process
    with pytest.raises(bc.InvalidProblemError, match="an executable of another process names"):
        problem_of(b"reduce.formula 0123")


def test_problems_made_at_run_time_are_known_to_this_process() -> None:
    f = bc.elementwise("x * y + 1")
    x = jnp.ones(3)
    assert f"{jax.make_jaxpr(f)(x, x)}".count("elementwise.formula") and (jax.jit(f)(x, x) == 2).all()


def test_a_compiled_executable_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    serialize = pytest.importorskip("jax.experimental.serialize_executable")
    x = jnp.arange(4.0)
    held = serialize.serialize(jax.jit(lambda x: bj.exp(bj.rms_norm(x))).lower(x).compile())
    monkeypatch.setattr(problem, "_known", {})
    monkeypatch.setattr(target, "_calls", {})
    loaded = serialize.deserialize_and_load(*held, execution_devices=jax.devices("cpu")[:1])
    assert np.array_equal(loaded(x), bc.exp(bc.rms_norm(np.asarray(x))))


def test_samples_lie_apart() -> None:
    call = Call(exp_of(1 << 20, 3), "cpu")
    args = call.sample()
    assert args.y.ptr >= args.x.ptr + (12 << 20) and args.x.ptr % 256 == 0
    assert call.plan.can_implement(args)


def test_a_workspace_is_aligned() -> None:
    call, seen = Call(replace(exp_of(4), workspace=512), "cpu"), []
    call.run_refs = lambda args, memory, stream: seen.append((memory, args, stream))
    call([4096], [8192, 1000], 5)
    memory, args, stream = seen[0]
    assert (memory.ptr, memory.shape, args.x.ptr, args.y.ptr, stream) == (1024, (512,), 4096, 8192, 5)
    assert problem.workspace_bytes(call.problem) >= 512 + 255


def test_memory_that_is_not_updated_in_place_is_refused() -> None:
    buffer = Buffer((4,), ElementKind.F32)
    desc = bc.FillDescriptor(shape=4, element="float32")
    call = Call(Problem(bc.FillPlan, desc, (("x", (buffer,)),), (("value", "1.0"), ("imag", "0.0"))), "cpu")
    with pytest.raises(bc.BaracudaError, match=r"elementwise\.fill: XLA gave other memory to update than to read"):
        call([4096], [8192], None)


# -- on a CUDA device that records ------------------------------------------------------------------------------------


def staged(one: Any, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """The problem that a call becomes."""
    seen: list[Problem] = []
    monkeypatch.setattr(staging, "function", lambda problem: seen.append(problem) or primitive(problem))
    with jax.enable_x64(True):
        jax.eval_shape(lambda arrays: one.call(**arrays), in_jax(one.arrays))
    return seen[0]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_what_was_made_ready_launches_under_capture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On XLA's stream, with XLA's workspace: nothing is prepared, allocated or asked for any more."""
    served = 0
    for one in problems(PLANS[name]):
        if served == 2:
            break
        if not jax.tree.leaves(in_jax(one.arrays)):  # lists may be empty
            continue
        found, device = staged(one, monkeypatch), bc.fake_device(9.0)
        with recording() as record:
            try:
                call = Call(found, device)
            except bc.UnsupportedError:  # an element that no row for this device has
                continue
            call = Call(replace(found, workspace=call.workspace_size()), device)
            call.plan.prepare(call.sample())
            pointers, count = call.addresses(), len(found.inputs)
            outputs = [*pointers[count:], 1 << 44] if call.problem.workspace else pointers[count:]
            record.capturing = True
            call(pointers[:count], outputs, 77)
            written = any(np.prod(buffer.shape) for _, buffer in found.outputs)
            library = target.target(found) != target.target(exp_of(3))  # which the recorder has not
            assert not record.allocations and (library or bool(record.launches) == written), str(one.case)
            assert all(launch.stream == 77 for launch in record.launches)
        served += 1


# -- processes --------------------------------------------------------------------------------------------------------


def run(code: str, **environment: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ | environment
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_importing_the_package_does_not_import_jax() -> None:
    assert run("import sys, baracuda_py as bc; bc.rms_norm; bc.exp; print('jax' in sys.modules)") == "False"


def test_a_process_without_jax_is_told() -> None:
    code = "import sys; sys.modules['jax'] = None\ntry: import baracuda_py.jax\nexcept ImportError as e: print(e)"
    assert 'needs JAX: pip install "baracuda_py[jax]"' in run(code)


def test_several_devices() -> None:
    """pmap and shard_map, with the gradient of what all shards share."""
    code = """
import jax, numpy as np, baracuda_py as bc
from jax.sharding import Mesh, PartitionSpec as P
jnp, bj = jax.numpy, bc.jax
x, w = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), "float32"), jnp.ones(8) * 1.5
mesh = Mesh(np.array(jax.devices()), ("d",))
for check in (True, False):
    sharded = jax.shard_map(bj.rms_norm, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check)
    assert np.array_equal(jax.jit(sharded)(x, w), bc.rms_norm(np.asarray(x), np.asarray(w)))
    loss = lambda f: jax.jit(jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)))
    for a, b in zip(loss(sharded)(x, w), loss(bj.rms_norm)(x, w)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
assert np.array_equal(jax.pmap(bj.exp)(x.reshape(2, 2, 8)), bc.exp(np.asarray(x)).reshape(2, 2, 8))
print("ok")
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    assert run(code, **flags) == "ok"
