"""Keys of compile units: of all that their machine code is made from, and of nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from baracuda_py.jit import Unit, compiler, nvrtc, source, toolkit
from baracuda_py.jit.cache import default_cache, make_key

_HEAD = re.compile(r".*#[ \t]*include[^\n]*\n", re.DOTALL)  # of a unit, to its last include
_LINE = re.compile(r"^#line .*\n", re.MULTILINE)  # where a flattened source falls into files, which units share
_TOKEN = re.compile(
    r"""(?P<blank>(?:[^\S\n]|//[^\n]*|/\*.*?\*/)+)|\n
    |"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'
    |\.?\d(?:[eEpP][+-]|[\w.'])*|define[ ]+\w+\(?|\w+
    |<<=|>>=|\.\.\.|->\*|::|\#\#|\+\+|--|->|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|.""",
    re.VERBOSE | re.DOTALL,
)


def version() -> str:
    """Of the NVRTC in use; a lock tells nothing of another one's machine code."""
    return "{}.{}".format(*nvrtc.load().version)


@cache
def tokens(text: str) -> str:
    """A text as the compiler reads it: its tokens, a space apart, each directive on a line of its own.

    Comments, line breaks and indentation are not part of it.
    """
    text = text.replace("\\\n", " ")
    lines: list[list[str]] = [[]]
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["blank"]:
            continue
        if token == "\n":
            if lines[-1][:1] == ["#"]:
                lines.append([])
        elif token == "#" and not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            lines.append([token])
        else:
            lines[-1].append(token)
    return "\n".join(map(" ".join, filter(None, lines)))


def split(text: str) -> tuple[str, str]:
    """A unit's text to its last include, in which few units differ, and what it adds to that."""
    match = _HEAD.match(text)
    head = match[0] if match else ""
    return head, text.removeprefix(head)


def keys(units: Mapping[tuple[str, str], Unit]) -> dict[tuple[str, str], str]:
    """The key of each unit, given by its name and target, as it is now.

    Units begin with few different lists of includes, and each list is read once.
    """
    fingerprint, compiled_by = default_cache().fingerprint, version()

    @cache
    def included(head: str) -> str:
        text = source.flatten(head)
        found = toolkit.header_closure(source.system_includes(text), lambda path: fingerprint(path).includes)
        return make_key((*map(tokens, _LINE.split(text)), *(fingerprint(path).digest for path in found)))

    def key(unit: Unit, target: str) -> str:
        head, own = split(unit.text)
        return make_key((included(head), tokens(own), *compiler.options(unit, target), compiled_by))[:20]

    return {name: key(unit, name[1]) for name, unit in units.items()}
