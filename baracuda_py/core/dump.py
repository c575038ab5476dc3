"""BARACUDA_DUMP: a call that fails is written to a file, which `python -m baracuda_py replay` runs again.

The file is an .npz: the arrays as bytes, and "call", a JSON text that says which function or plan was called with what,
in which environment, and what it raised. The variable is read when functions and plans are made, so set it before the
package is imported; while it is not set nothing stands around a function.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import io
import itertools
import json
import os
import platform
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..interop.packages import package_name
from . import config, storage
from .arrays import read
from .checked import shown
from .element import ElementKind

F = TypeVar("F", bound=Callable[..., Any])
_depth = threading.local()
_count = itertools.count()


def dumped(function: F) -> F:
    """The function, or while BARACUDA_DUMP names a folder, one that writes a call that fails there."""
    if not wanted():
        return function

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if getattr(_depth, "inside", False):
            return function(*args, **given)
        _depth.inside = True
        try:
            return function(*args, **given)
        except Exception as error:
            note(error, {"function": function.__name__}, args, given)
            raise
        finally:
            _depth.inside = False

    return call  # type: ignore[return-value]


def wanted() -> bool:
    """Whether BARACUDA_DUMP is set."""
    return bool(os.environ.get("BARACUDA_DUMP", "").strip())


def of_plan(plan: Any, args: Any, error: Exception) -> None:
    """Write a call of a plan that failed, unless a functional call is about to be written."""
    if wanted() and not getattr(_depth, "inside", False):
        fields = {f.name: _encoded(getattr(plan.desc, f.name), {}) for f in dataclasses.fields(plan.desc)}
        given = (
            {f.name: getattr(args, f.name) for f in dataclasses.fields(args)} if dataclasses.is_dataclass(args) else {}
        )
        note(error, {"plan": type(plan).__name__, "descriptor": fields}, (), given)


def note(error: Exception, what: Mapping[str, Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Write the call, and say in the error where; a folder that cannot be written to hides nothing."""
    try:
        folder = config.get("BARACUDA_DUMP")
        if folder is None:
            return
        said = f"BARACUDA_DUMP: {write(folder, what, args, given, error)}"
    except Exception as why:
        said = f"BARACUDA_DUMP: not written: {type(why).__name__}: {why}"
    if hasattr(error, "add_note"):
        error.add_note(said)
    else:  # Python 3.10
        error.args = (f"{error.args[0] if error.args else ''}\n{said}", *error.args[1:])


def write(
    folder: Path, what: Mapping[str, Any], args: tuple[Any, ...], given: Mapping[str, Any], error: BaseException
) -> Path:
    """The file of one call."""
    storage.make_folder(folder)
    if why := storage.distrust(folder):
        raise PermissionError(f"{folder}: {why}; name a folder that only you may write (chmod 700)")
    arrays: dict[str, np.ndarray] = {}
    call = {
        **what,
        "args": [_encoded(value, arrays) for value in args],
        "keywords": {key: _encoded(value, arrays) for key, value in given.items()},
        "error": {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()},
        "problem": _problem(error),
        "environment": {
            "python": platform.python_version(), "platform": platform.platform(), "numpy": np.__version__,
            **{name: sys.modules[name].__version__ for name in ("cupy", "torch", "jax") if name in sys.modules},
            **{key: value for key, value in sorted(os.environ.items()) if key.startswith("BARACUDA_")},
        },
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }  # fmt: skip
    name = what.get("function", what.get("plan"))
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_count)}-{secrets.token_hex(4)}-{name}.npz"
    held: dict[str, Any] = {"call": np.array(json.dumps(call)), **arrays}
    image = io.BytesIO()
    np.savez(image, **held)
    storage.write_file(path, image.getvalue(), durable=False)  # whole, for its owner alone, through no planted link
    return path


def _problem(error: BaseException) -> str:
    """The innermost plan that the error passed through, with its descriptor, as text."""
    found, frame = "", error.__traceback__
    while frame is not None:
        for value in frame.tb_frame.f_locals.values():
            if hasattr(type(value), "explain") and hasattr(type(value), "plan_layout") and hasattr(value, "desc"):
                found = f"{value.op}  {value.desc}  on {value.device}, {value.preference}"
        frame = frame.tb_next
    return found


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON has it; arrays go to `arrays` and are named."""
    if isinstance(value, ElementKind):
        return {"element": str(value)}
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__name__, "value": value.value}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_encoded(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"mapping": {str(key): _encoded(item, arrays) for key, item in value.items()}}
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"element": np.dtype(value).name}
    try:
        return _array(value, arrays)
    except Exception as why:
        return {"unreadable": shown(value), "type": type(value).__name__, "why": f"{type(why).__name__}: {why}"}


def _array(value: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    package, kind = package_name(type(value)), type(value)
    facts: dict[str, Any] = {"package": package}
    if package == "torch":
        facts["requires_grad"] = bool(value.requires_grad)
        value = value.detach()
    got = read(value)
    name = f"a{len(arrays)}"
    host = on_host(value, package)
    arrays[name] = np.frombuffer(np.ascontiguousarray(host).tobytes(), np.uint8)
    return facts | {
        "array": name, "element": str(got.element), "shape": list(got.shape), "strides": list(got.strides),
        "type": kind.__name__, "device": got.device, "alignment": got.ptr & 15, "readonly": bool(got.readonly),
    }  # fmt: skip


def on_host(value: Any, package: str) -> np.ndarray:
    """The values of an array of any package as a NumPy array."""
    if package == "cupy":
        return np.asarray(value.get())
    if package == "torch":
        import torch

        plain = value.resolve_conj().resolve_neg().cpu()
        kind = ElementKind.of(plain.dtype)
        plain = plain if kind.dtype.isbuiltin == 1 else plain.view(getattr(torch, f"int{kind.bits}"))
        return np.asarray(plain.numpy())
    return np.asarray(value)
