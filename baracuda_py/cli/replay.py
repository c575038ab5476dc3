"""`replay`: a call that BARACUDA_DUMP wrote, run again.

A file may come from anybody. It chooses among functions of this package that a call could have been of, and gives
arrays and plain values; it cannot name anything else, nor make this process take more memory than its layouts may.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from .._exports import EXPORTS
from ..core import registry
from ..core.arrays import read
from ..core.checked import shown
from ..core.device import in_use, resolve_device
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.watch import described

_MOST_BYTES = 1 << 36  # of a file's arrays, and of what one of them spans with its strides
_NUMBERS = range(-(2**63), 2**64)
_FACTS = {"args": list, "keywords": dict, "error": dict, "problem": str, "environment": dict, "time": str}

SAYS = "run a call again that BARACUDA_DUMP wrote"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("file", type=Path, help="what a failing call left in the folder of BARACUDA_DUMP")
    parser.add_argument("--device", help="cpu, or cuda:N: where the arrays are put (default: CUDA where there is one)")
    parser.add_argument("--show", action="store_true", help="print what is in the file, and run nothing")


def run(options: argparse.Namespace) -> int:
    """Run the call; 0 where it works now."""
    call, arrays = load(options.file)
    for line in _told(call):
        print(_printable(line))
    if options.show:
        return 0
    try:
        made = again(call, arrays, options.device)
    except Exception as error:
        same = type(error).__name__ == call["error"]["type"]
        text = str(error).partition("\nBARACUDA_DUMP")[0]
        print(f"{'the same error' if same else 'another error'}: {type(error).__name__}: {text}")
        return 1
    print(f"it works: {_shown(made)}")
    return 0


def load(path: Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    """The call and the bytes of its arrays."""
    try:
        with zipfile.ZipFile(path) as packed:
            for entry in packed.infolist():
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > _MOST_BYTES:
                    raise ValueError(f"{shown(entry.filename)} is compressed, or too large")
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        return _checked(json.loads(str(held.pop("call")))), held
    except (KeyError, ValueError, TypeError, RecursionError, zipfile.BadZipFile) as error:
        raise BaracudaError(f"{path} is no file of BARACUDA_DUMP: {error}") from None


def _checked(call: Any) -> dict[str, Any]:
    """The call, where its fields are of the types that a dump writes."""
    if type(call) is not dict or ("function" in call) == ("plan" in call):
        raise ValueError("it names no function and no plan")
    facts = dict(_FACTS) | ({"function": str} if "function" in call else {"plan": str, "descriptor": dict})
    for name, kind in facts.items():
        if type(call[name]) is not kind:
            raise ValueError(f"{name} is {type(call[name]).__name__}, not {kind.__name__}")
    if not all(type(call["error"][name]) is str for name in ("type", "message")):
        raise ValueError("error has no type and message")
    return call


def _function(name: str) -> Any:
    """A function that a call may have been of: a functional entry by its public name."""
    found = getattr(import_module("baracuda_py"), name) if name in EXPORTS else None
    if not isinstance(found, FunctionType) or not hasattr(found, "plan"):
        raise BaracudaError(f"the file names {shown(name)}, which is no function of a plan; `ops` lists those")
    return found


def again(call: Mapping[str, Any], arrays: Mapping[str, np.ndarray], device: str | None = None) -> Any:
    """The call itself: what the function returns, or the plan's outputs; raises what it raises."""
    reader = Reader(arrays, device)
    args = [reader.value(one) for one in call["args"]]
    given = {name: reader.value(one) for name, one in call["keywords"].items()}
    if "function" in call:
        return _function(call["function"])(*args, **given)
    if call["plan"] not in registry.plans():
        raise BaracudaError(f"the file names {shown(call['plan'])}, which is no plan; `ops` lists those")
    plan = registry.plan(call["plan"])
    desc = plan.descriptor(**{name: reader.value(one) for name, one in call["descriptor"].items()})
    operands = plan.args(**given)
    chosen = plan.select(desc, device=device or ("cuda" if reader.cuda else "cpu"))
    print(described(chosen, operands))
    chosen.run(operands)
    return tuple(value for value in given.values() if hasattr(value, "shape"))


class Reader:
    """Values as they were given; arrays in their layout, on the device that is there."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: str | None) -> None:
        self.arrays = arrays
        self.cuda = in_use(resolve_device(device)).kind == "cuda"

    def value(self, said: Any) -> Any:
        if isinstance(said, list):
            return [self.value(one) for one in said]
        if isinstance(said, int) and said not in _NUMBERS:
            raise BaracudaError(f"the file has the number {shown(said)}, which no call takes")
        if not isinstance(said, dict):
            return said
        if "array" in said:
            return self.array(said)
        if "mapping" in said:
            return {name: self.value(one) for name, one in said["mapping"].items()}
        for kind in (list, tuple):
            if kind.__name__ in said:
                return kind(self.value(one) for one in said[kind.__name__])
        if "enum" in said:
            return said["value"]
        if "element" in said:
            return ElementKind.of(said["element"])
        if "float" in said:
            return float(said["float"])
        raise BaracudaError(f"the call had a {said['type']} that could not be written: {said['why']}")

    def array(self, said: Mapping[str, Any]) -> Any:
        """An array of the package it was of, where that is here; else CuPy's or NumPy's."""
        _plain_layout(said)
        element = ElementKind.of(said["element"])
        dtype = element.dtype if element.bits >= 8 else element.carrier
        dense = self.arrays[said["array"]].view(dtype).reshape(said["shape"])
        host = _laid(dense, said["strides"], said["alignment"])
        if said["readonly"] and said["package"] == "numpy":
            host.flags.writeable = False
        if said["package"] == "torch":
            return _tensor(dense, element, said, self.cuda and said["device"] >= 0)
        if said["package"] == "jax":
            return import_module("jax.numpy").asarray(dense)
        return _on_device(dense, said["strides"]) if self.cuda and said["device"] >= 0 else host


def _plain_layout(said: Mapping[str, Any]) -> None:
    """Refuse shapes and strides that are no numbers, or that span more than fits."""
    shape, strides = said["shape"], said["strides"]
    if type(shape) is not list or type(strides) is not list or len(shape) != len(strides):
        raise BaracudaError("an array of the file has no shape and strides")
    if (
        not all(type(n) is int and n in _NUMBERS for n in (*shape, *strides, said["alignment"]))
        or min(shape, default=0) < 0
    ):
        raise BaracudaError(f"an array of the file has shape {shown(shape)}, strides {shown(strides)}")
    spanned = sum(max(n - 1, 0) * abs(s) for n, s in zip(shape, strides, strict=True))
    if spanned * ElementKind.of(said["element"]).itemsize > _MOST_BYTES:
        raise BaracudaError(
            f"an array of the file spans {spanned} elements by shape {shown(shape)}, strides {shown(strides)}"
        )


def _laid(dense: np.ndarray, strides: list[int], alignment: int) -> np.ndarray:
    """The values at the strides (in elements) and the alignment that the array had."""
    size = dense.itemsize
    reach = [(n - 1) * s for n, s in zip(dense.shape, strides, strict=True) if n]
    low, high = sum(r for r in reach if r < 0) * size, (sum(r for r in reach if r > 0) + 1) * size
    raw = np.zeros(high - low + 64, np.uint8)
    start = -low + (alignment - raw.ctypes.data + low) % 16
    made: np.ndarray = np.ndarray(dense.shape, dense.dtype, raw.data, start, tuple(s * size for s in strides))
    made[...] = dense
    return made


def _on_device(dense: np.ndarray, strides: list[int]) -> Any:
    import cupy

    size = dense.itemsize
    reach = [(n - 1) * s for n, s in zip(dense.shape, strides, strict=True) if n]
    low, high = sum(r for r in reach if r < 0) * size, (sum(r for r in reach if r > 0) + 1) * size
    memory = cupy.zeros(high - low, cupy.uint8)
    made = cupy.ndarray(dense.shape, dense.dtype, memory.data + -low, tuple(s * size for s in strides))
    made[...] = cupy.asarray(dense)
    return made


def _tensor(dense: np.ndarray, element: ElementKind, said: Mapping[str, Any], cuda: bool) -> Any:
    torch = import_module("torch")
    plain = element.dtype.isbuiltin == 1
    made = torch.from_numpy(dense.copy() if plain else dense.view(f"i{element.itemsize}").copy())
    made = made if plain else made.view(getattr(torch, str(element)))
    made = made.cuda() if cuda else made
    held = torch.empty_strided(said["shape"], said["strides"], dtype=made.dtype, device=made.device)
    if all(n <= 1 or s > 0 for n, s in zip(said["shape"], said["strides"], strict=True)):
        made = held.copy_(made)
    else:  # an expanded tensor
        first = tuple(slice(None) if s else slice(0, 1) for s in said["strides"])
        made = made[first].expand(said["shape"])
    return made.requires_grad_() if said["requires_grad"] else made


def _told(call: Mapping[str, Any]) -> list[str]:
    """The file in words."""
    what = call.get("function", call.get("plan"))
    lines = [f"{what}, {call['time']}: {call['error']['type']}: {call['error']['message']}"]
    lines += [f"  problem  {call['problem']}"] if call["problem"] else []
    named = [(str(i), one) for i, one in enumerate(call["args"])] + list(call["keywords"].items())
    for name, said in named:
        text = json.dumps(said)
        if isinstance(said, dict) and "array" in said:
            text = f"{said['package']} {said['element']}{said['shape']} strides {said['strides']}"
        lines.append(f"  {name:<16} {text}")
    return [*lines, "  environment  " + ", ".join(f"{k}={v}" for k, v in call["environment"].items())]


def _printable(text: str) -> str:
    """Text of a file as a terminal may have it: without what would move its cursor or write elsewhere."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _shown(made: Any) -> str:
    if isinstance(made, (list, tuple)):
        return ", ".join(map(_shown, made))
    try:
        got = read(made)
    except BaracudaError:
        return repr(made)
    return f"{got.element}{list(got.shape)}"
