"""What the public names of one tree do, as JSON lines; `replay_calls.py` runs this once for each tree it compares.

    python tools/replay_record.py TREE FILE [--place PLACE …] [NAME …]

The package, and how it pretends to have devices, are the tree's; the calls come from this tree's `tests/interop/`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
FIXED = {
    "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell", "JAX_PLATFORMS": "cpu",
}  # fmt: skip
Call = tuple[list[Any], dict[str, Any]]


def record(tree: Path, file: Path, names: list[str], wanted: list[str]) -> None:
    """Write a line for every call of the names, of all where none is given, in every place."""
    sys.path[:0] = [str(tree)]
    package = importlib.import_module("baracuda_py")  # before this tree can be found
    sys.path[:0] = [str(HERE), str(HERE / "tools")]
    for name in ("torch", "jax", "nn.functional"):
        if not wanted or any(name in one for one in wanted):
            importlib.import_module(f"baracuda_py.{name}")
    assert str(package.__file__).startswith(str(tree)), f"{package.__file__} is not of {tree}"
    from replay_frameworks import places
    from replay_places import Plans

    samples = sampled(names)
    made = places(Plans(package.Plan), tree)
    lines = [] if wanted else list(surfaces(package, names))
    for place in made:
        if not wanted or place in wanted:
            lines += calls(made[place](), samples)
    lines.sort(key=lambda one: (one["name"], one["place"], one["call"], one["mode"]))
    file.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines))


def surfaces(package: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    """What every name is before it is called: signature, fields or members, help."""
    from replay_values import words

    spaces = {"": package, "nn.functional.": package.nn.functional, "torch.": sys.modules["baracuda_py.torch"],
              "jax.": package.jax}  # fmt: skip
    for prefix, space in spaces.items():
        for name in sorted(names or {n for n in dir(space) if not n.startswith("_")}):
            value = getattr(space, name, None)
            if value is None or inspect.ismodule(value):
                continue
            try:
                shape = str(inspect.signature(value))
            except (TypeError, ValueError):
                shape = ""
            told: dict[str, Any] = {
                "is": type(value).__name__,
                "signature": words(shape),
                "of": value.__module__ if hasattr(value, "__module__") else "",
            }
            if isinstance(value, type):
                told |= {"bases": [one.__name__ for one in value.__mro__[1:-1]]}
                told |= {"members": [str(one) for one in getattr(value, "__members__", ())]}
            if not prefix:
                told["help"] = str(getattr(value, "__doc__", ""))
            yield {"name": name, "place": f"{prefix}surface", "call": "", "mode": "", **told}


def sampled(names: list[str]) -> dict[str, dict[str, Call]]:
    """The calls of every function among the names, made before any place is there."""
    from tests.interop.sample_calls import functions, sample_calls

    known = functions()
    found = {name: sample_calls(name) for name in known if not names or name in names}
    attention = "scaled_dot_product_attention"  # of `nn.functional` alone
    return found | ({attention: sample_calls("flash_sdpa")} if not names or attention in names else {})


def calls(place: Any, samples: dict[str, dict[str, Call]]) -> list[dict[str, Any]]:
    """Every mode of every sample call, in one place."""
    lines = []
    with place.there():
        for name in sorted(samples):
            try:
                function = place.function(name)
            except AttributeError:
                continue
            place.forget()
            first = True
            for case, call in samples[name].items():
                for mode, (operands, facts) in modes(place, function, call, first):
                    line = {"name": name, "place": place.name, "call": case, "mode": mode}
                    lines.append(line | one_call(place, name, function, operands, facts, mode))
                first = False
    return lines


def one_call(
    place: Any, name: str, function: Any, operands: list[Any], facts: dict[str, Any], mode: str
) -> dict[str, Any]:
    """What one call does: results, what it wrote over, plans, launches, gradients, or its error."""
    from replay_values import Known, bits, failed, given, is_array, leaves, moved

    from tests.interop.hand_exported import THEN

    def move(array: Any) -> Any:
        return place.move(array) if type(array).__module__ == "numpy" else array

    args, options = moved(operands, move), moved(facts, move)
    if mode == "out":
        made = attempt(lambda: function(*args, **options))
        if made is None or not any(True for _ in leaves(made)):
            return {"out": "none"}
        args, options = moved(operands, move), moved(facts, move)
        options["out"] = moved(list(made) if isinstance(made, list) else made, place.like)
    if mode == "one grown":  # other operands may have no gradient
        for _, one in list(leaves([args, options]))[1:]:
            one.requires_grad_(False)
    known = Known()
    held = [(path, one) for path, one in leaves([args, options])]
    for path, one in held:
        known.add(path.removeprefix("0.").removeprefix("1."), one)
    before = {path: bits(one) for path, one in held} if place.valued else {}
    told: dict[str, Any] = {}
    place.begin(known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = function(*args, **options)
            if name in THEN and not is_array(made) and callable(made):
                told["made"] = given(made, known, False)
                made = THEN[name](_moving(made, move))
            valued = place.valued and not name.startswith("empty")  # whose elements are not set
            told["out"] = given(made, known, valued)
            forward = len(place.plans.seen)
            grads = place.gradients(made, [args, options])
            if grads is not None:
                told["gradients"] = [None if g is None else given(g, known, valued) for g in grads]
                told["backward plans"] = place.plans.seen[forward:]
                del place.plans.seen[forward:]
        except Exception as error:
            told["error"] = failed(error)
    seen = place.plans.seen
    told["plans"] = sorted(seen) if "jax" in place.name else list(seen)
    told["launches"] = place.launches(known)
    told["changed"] = [f"{path} {now}" for path, one in held if path in before and (now := bits(one)) != before[path]]
    return {key: value for key, value in told.items() if value not in ([], None)}


def _moving(made: Any, move: Any) -> Any:
    """A formula's function that takes NumPy arrays, moved."""
    from replay_values import moved

    class Moving:
        def __call__(self, *args: Any, **facts: Any) -> Any:
            return made(*moved(args, move), **moved(facts, move))

        def __str__(self) -> str:
            return str(made)

    return Moving()


def attempt(call: Any) -> Any:
    """What a call gives, None where it fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception:
        return None


def modes(place: Any, function: Any, call: Call, first: bool) -> Iterator[tuple[str, Call]]:
    """A call in other ways: as it is and again, strided, with options; of the first call of a function wrong ones too,
    and in slow places that one alone."""
    import numpy as np
    from replay_values import is_array, moved

    np.seterr(all="ignore")
    operands, facts = call
    taken = inspect.signature(function).parameters
    if place.name in ("torch trace", "jax", "jax gradient"):  # slow ones
        if first:
            yield "1 plain", call
        return
    yield "1 plain", call
    if place.name in ("cuda", "torch gradient", "torch cuda"):
        yield "2 again", call
    if place.name == "torch gradient":
        yield "one grown", call
        return
    if place.name == "nn.functional":
        named = attempt(lambda: _by_name(sys.modules["baracuda_py"].__dict__[function.__name__], call))
        if named is not None:
            yield "by name", named
        return
    if place.name in ("numpy", "cuda", "torch", "torch cuda"):
        yield "strided", moved(call, _apart)
    if place.name not in ("numpy", "cuda"):
        return
    if "out" in taken:
        yield "out", call
    if not first:
        return
    if "stream" in taken:
        yield "stream", (operands, {**facts, "stream": 0x777})
    if "preference" in taken:
        prefers = sys.modules["baracuda_py"].PlanPreference
        yield "preference", (operands, {**facts, "preference": prefers(deterministic=True)})
    if "layout" in taken:
        yield "layout", (operands, {**facts, "layout": "bshd"})
    for dtype in ("float64", "float16", "complex64", "int32", "uint16", "bool"):
        yield f"as {dtype}", moved(call, partial(_as, dtype))
    yield "numbers held", (operands, {k: np.array(v, np.float32) if type(v) is float else v for k, v in facts.items()})
    yield from _wrong(operands, facts, taken, is_array)


def _as(dtype: str, array: Any) -> Any:
    """An operand of float32 as another element."""
    return array.astype(dtype) if array.dtype == "float32" else array


def _apart(array: Any) -> Any:
    """The same elements as a view with gaps."""
    import numpy as np

    base = np.zeros(tuple(2 * n for n in array.shape), array.dtype)
    view = base[tuple(slice(None, None, 2) for _ in array.shape)] if array.shape else base
    view[...] = array
    return view


def _by_name(function: Any, call: Call) -> Call:
    bound = inspect.signature(function).bind_partial(*call[0])
    return [], {**bound.arguments, **call[1]}


def _wrong(operands: list[Any], facts: dict[str, Any], taken: Any, is_array: Any) -> Iterator[tuple[str, Call]]:
    """Calls that are refused, or say what else they take."""
    import numpy as np

    yield "wrong: unknown keyword", (operands, {**facts, "axsi": 1})
    yield "wrong: one operand more", ([*operands, 1, 2, 3], facts)
    if operands:
        yield "wrong: one operand less", (operands[:-1], facts)
    if facts:
        yield "wrong: one keyword less", (operands, dict(list(facts.items())[1:]))
    odd_options = (
        ("out", np.zeros(3, np.int8)), ("out", "text"), ("out", (None, None, None, None)), ("axis", 99), ("axis", "x"),
        ("stream", "x"), ("preference", "fast"), ("element", "float99"), ("like", 3), ("dim", 0), ("keepdims", "x"),
        ("return_lse", True),
    )  # fmt: skip
    for option, value in odd_options:
        if option in taken or option in ("dim", "out"):
            kind = value if isinstance(value, (int, str)) else type(value).__name__
            yield f"wrong: {option}={kind}", (operands, {**facts, option: value})
    keys: list[Any] = [i for i, one in enumerate(operands) if is_array(one)]
    for key in [*keys, *(name for name, one in facts.items() if is_array(one))][:3]:
        own = operands[key] if isinstance(key, int) else facts[key]
        odd = {"text": "text", "None": None, "an axis more": own[..., None], "a number": 2.0,
               "empty": own[:0] if own.ndim else own, "of objects": [object()]}  # fmt: skip
        for kind, value in odd.items():
            if isinstance(key, int):
                yield f"wrong: {key} is {kind}", ([*operands[:key], value, *operands[key + 1 :]], facts)
            else:
                yield f"wrong: {key} is {kind}", (operands, {**facts, key: value})


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--place", action="append", default=[])
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **FIXED})
    record(options.tree.resolve(), options.file, options.names, options.place)


if __name__ == "__main__":
    main()
