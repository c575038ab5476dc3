"""What a plan asks of several arrays at once."""

from __future__ import annotations

import pytest

from baracuda_py.core.checked import require_some
from baracuda_py.core.errors import InvalidProblemError


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("dx",), "^dx is None; give it$"),
        (("da", "db"), "^da and db are both None; give one of them at least$"),
        (("da", "db", "dc"), "^da, db and dc are all None; give one of them at least$"),
    ],
)
def test_one_of_the_names_must_be_given(names: tuple[str, ...], message: str) -> None:
    for nothing in ({}, dict.fromkeys(names), {**dict.fromkeys(names), "other": 1}):
        with pytest.raises(InvalidProblemError, match=message):
            require_some(nothing, *names)
    for name in names:
        require_some({**dict.fromkeys(names), name: 0}, *names)
