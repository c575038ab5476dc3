"""Rounding to whole numbers."""

from __future__ import annotations

import numpy as np

from .row import Function, exact

FLOOR = Function("Floor", np.floor, torch="floor")
CEIL = Function("Ceil", np.ceil, torch="ceil")
ROUND = Function("Round", np.rint, torch="round", aliases=("rint",))
TRUNC = Function("Trunc", np.trunc, torch="trunc", aliases=("fix",))
FRAC = Function("Frac", lambda x: x - np.trunc(x), lambda dy, x: dy, slope=exact, torch="frac")
