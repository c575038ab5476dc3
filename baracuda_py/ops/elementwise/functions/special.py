"""The error function and its relatives."""

from __future__ import annotations

from .. import unary_gradients as slopes
from ..special import erf, erfc
from .row import Function, ulps

ERF = Function("Erf", erf, slopes.bell_slope(2), bound=ulps(2.5, 2.5), torch="erf")
ERFC = Function("Erfc", erfc, slopes.bell_slope(-2), bound=ulps(4.5, 5.5, bfloat16=0.52), torch="erfc")
