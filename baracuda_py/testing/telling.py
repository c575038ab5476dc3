"""Do a problem's operands tell what an op computes? Where they are 0 and 1, or equal, many formulas give the same."""

from __future__ import annotations

import itertools

import numpy as np

from ..core.args import Everywhere
from ..core.element import ElementKind, decode
from .draw import Case, possible_outputs
from .operands import Operands
from .reference import element_of, evaluate

_SEVERAL = 3  # values off 0 and ±1 that an operand of as many elements has, at least


def tells(ready: Operands) -> bool:
    """Whether operands and numbers differ from 0, 1 and each other, and every output that there may be is asked for.

    A number that is what a call takes that leaves it out, 0 or 1, hides an error that leaves it out, too.
    """
    case = ready.case
    if set(possible_outputs(case.plan, case.desc, case.arrays)) - case.wanted or case.omitted:
        return False
    seen = []
    for spec, _, one in ready.items():
        if spec.reads:
            element = element_of(spec, case.desc, one.view)
            seen.append(np.asarray(decode(np.array(one.view), element)))
            free = spec.values is None or isinstance(spec.values, Everywhere)  # else labels, places, signs
            if not _various(seen[-1], free and element is case.desc.element and element is not ElementKind.BOOL):
                return False
    return not any(_alike(a, b) for a, b in itertools.combinations(seen, 2))


def results_differ(case: Case) -> bool:
    """Whether every result has several values, and finite ones: an error that leaves it as it is tells nothing."""
    for name, result in evaluate(case).items():
        for one in (result if isinstance(result, (list, tuple)) else [result]) if name in case.wanted else ():
            finite = np.asarray(one)[np.isfinite(one)]
            if np.size(one) and not (len(np.unique(finite)) > 1 if np.size(one) > 1 else np.any(finite)):
                return False
    return True


def _various(values: np.ndarray, numbers: bool) -> bool:
    """Several numbers off 0 and ±1; of truth values, places and codes more than one."""
    if not values.size:
        return False
    found = np.unique(values[np.isfinite(values)])
    off = found[(found != 0) & (np.abs(found) != 1)] if numbers else found
    return len(off) >= min(_SEVERAL if numbers else 2, values.size)


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.size > 1 and bool(np.all(a == b))
