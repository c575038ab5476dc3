"""The frame: what every op is made of. It knows no op.

What a page declares: `args`, `descriptor`, `checked`, `kinds`, `named`, `params`, `variant`, `tensor_map`,
`error_bound`, `sku`, `spec`, `benchmark`, `signatures`, `doc`, `keywords`.

What describes an array: `element`, `numbers`, `tensor`, `arrays`, `exchange`, `host_memory`, `unreadable`, `ordinals`,
`one_device`, `views`, `outputs`, `memory`.

How a plan is chosen and run: `plan`, `preference`, `registry`, `outside`, `solving`, `batching`, `dispatch`, `device`,
`execution`, `intake`, `tuned`, `warm`, `unit`, `graph`, `finite`, `watch`, `dump`, `renamed`.

The process that all are in: `errors`, `config`, `memo`, `storage`, `lock`.
"""

from .args import Args, Array, Everywhere, Scalar, inout, operand, output, scalar
from .checked import derived
from .descriptor import (
    Descriptor,
    axes,
    axis,
    choice,
    element,
    extent,
    extents,
    flag,
    integer,
    number,
    pairs,
    per_axis,
    shapes,
    spread,
)  # fmt: skip
from .element import FLOATS, ElementKind
from .error_bound import Backward, Chained, Exact, Forward, PerOutput, Relative, Ulp
from .errors import (
    BaracudaError,
    BufferTooSmallError,
    DeviceMismatchError,
    InvalidProblemError,
    MisalignedOperandError,
    UnsupportedError,
)  # fmt: skip
from .params import Params
from .plan import Plan
from .preference import PlanPreference
from .sku import ArchSku, BackendKind, KernelSku, OpCategory, PrecisionGuarantee
from .spec import Spec, Vjp
from .tensor import TensorRef, View
from .tensor_map import TensorMap
from .variant import Geometry, Guarantee, Kernel, LibraryStep, Problem, Step, Variant

__all__ = [
    "FLOATS",
    "ArchSku",
    "Args",
    "Array",
    "BackendKind",
    "Backward",
    "BaracudaError",
    "BufferTooSmallError",
    "Chained",
    "Descriptor",
    "DeviceMismatchError",
    "ElementKind",
    "Everywhere",
    "Exact",
    "Forward",
    "Geometry",
    "Guarantee",
    "InvalidProblemError",
    "Kernel",
    "KernelSku",
    "LibraryStep",
    "MisalignedOperandError",
    "OpCategory",
    "Params",
    "PerOutput",
    "Plan",
    "PlanPreference",
    "PrecisionGuarantee",
    "Problem",
    "Relative",
    "Scalar",
    "Spec",
    "Step",
    "TensorMap",
    "TensorRef",
    "Ulp",
    "UnsupportedError",
    "Variant",
    "View",
    "Vjp",
    "axes",
    "axis",
    "choice",
    "derived",
    "element",
    "extent",
    "extents",
    "flag",
    "inout",
    "integer",
    "number",
    "operand",
    "output",
    "pairs",
    "per_axis",
    "scalar",
    "shapes",
    "spread",
]  # fmt: skip
