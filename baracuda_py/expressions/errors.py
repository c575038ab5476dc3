"""What is wrong with a formula, and where: public here, and the frame's, as equations of products raise it, too."""

from __future__ import annotations

from ..core.errors import ExpressionError as ExpressionError
from ..core.errors import Span as Span
from ..core.exported import exported

exported(ExpressionError)
