"""`replay`: a call that BARACUDA_DUMP wrote, run again."""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..core import registry
from ..core.device import in_use, resolve_device
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.watch import described
from ..interop.arrays import read

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
        print(line)
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
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        return json.loads(str(held.pop("call"))), held
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BaracudaError(f"{path} is no file of BARACUDA_DUMP: {error}") from None


def again(call: Mapping[str, Any], arrays: Mapping[str, np.ndarray], device: str | None = None) -> Any:
    """The call itself: what the function returns, or the plan's outputs; raises what it raises."""
    reader = Reader(arrays, device)
    args = [reader.value(one) for one in call["args"]]
    given = {name: reader.value(one) for name, one in call["keywords"].items()}
    if "function" in call:
        return getattr(import_module("baracuda_py"), call["function"])(*args, **given)
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


def _shown(made: Any) -> str:
    if isinstance(made, (list, tuple)):
        return ", ".join(map(_shown, made))
    try:
        got = read(made)
    except BaracudaError:
        return repr(made)
    return f"{got.element}{list(got.shape)}"
