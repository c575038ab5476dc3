"""Every plan, by name. Pages register as they are imported; `plans()` imports them all, other packages' too."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from .._exports import EXPORTS
from . import outside
from .errors import InvalidProblemError
from .keywords import near
from .plan import NAMED, PLANS, Plan


def plans() -> dict[str, type[Plan]]:
    """All plans, name → class, in order of family and name."""
    _import_pages()
    return dict(sorted(PLANS.items(), key=lambda item: (item[1].op, item[0])))


@cache
def _import_pages() -> None:
    """Once a process: to walk the folders costs as much as a hundred look-ups."""
    package = importlib.import_module("baracuda_py.ops")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    outside.import_pages()


def plan(name: str) -> type[Plan]:
    """A plan by class name (`RMSNormPlan`, a name for some kinds of one included) or op name (`norm.rms_norm`)."""
    known = plans()
    if name in NAMED:
        return NAMED[name]
    if name.endswith("Plan") and EXPORTS.get(name) == "named_plans":  # whose names are made as they are asked for
        return public(name)  # type: ignore[no-any-return]
    for key, cls in known.items():
        if name in (key, cls.op, cls.op.partition(".")[2]):
            return cls
    raise InvalidProblemError(
        f"no op {name!r}{_meant(name) or '; `python -m baracuda_py ops` lists them, `ops --search WORD` finds some'}"
    )


def public(name: str) -> Any:
    """What the package exports by a name; its module is loaded when it is first asked for, as a plan's is."""
    return getattr(importlib.import_module("baracuda_py"), name)


def family(name: str) -> list[type[Plan]]:
    """The plans of a family (`norm`), or of one op as `plan` finds it; or of a kind (`silu`)."""
    known = plans().values()
    if found := [cls for cls in known if name == cls.op.partition(".")[0]]:
        return found
    op = any(name == cls.op.partition(".")[2] for cls in known)
    return ([] if op else [cls for cls in known if name in _kinds(cls)]) or [plan(name)]


def _kinds(cls: type[Plan]) -> list[str]:
    return [kind.value for kind in cls.kinds or ()]


def _meant(name: str) -> str:
    """The ops, families and kinds that a name may be a slip of, for an error."""
    of_kind = [f"{cls.op} kind={name}" for cls in plans().values() if name in _kinds(cls)]
    of_family = [cls.op for cls in plans().values() if name == cls.op.partition(".")[0]]
    if of_kind or of_family:
        found = list(dict.fromkeys(of_kind or of_family))
        rest = f" (`python -m baracuda_py ops {name}` lists {len(found)})" if len(found) > 3 else ""
        return f"; did you mean {' or '.join(found[:3])}?{rest}"
    words: dict[str, str] = {}
    for key, cls in plans().items():
        group, _, short = cls.op.partition(".")
        words |= {word.lower(): word for word in (key, cls.op, short, group, *_kinds(cls))}
    found = [words[word] for word in near(name.lower(), words)]
    return f"; did you mean {' or '.join(found)}?" if found else ""
