"""What is wrong with a formula, and where: public here, and the frame's, as equations of products raise it, too."""

from __future__ import annotations

from ..calls.exported import exported
from ..core.errors import ExpressionError as ExpressionError
from ..core.errors import Span as Span

exported(ExpressionError)
