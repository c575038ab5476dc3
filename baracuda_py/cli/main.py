"""`python -m baracuda_py`: env · ops · explain · warm · cache · tune · bench · doctor · replay.

Exit status: 0; 1 where something failed, which one line on stderr tells; 2 where the command line was not understood;
130 after Ctrl-C. A reader that closes the pipe early (`| head`) is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from typing import Any, TextIO

from .. import __version__
from ..core.errors import BaracudaError
from ..core.keywords import near
from . import bench, cache, doctor, env, explain, ops, replay, tune, warm

COMMANDS = (env, ops, explain, warm, cache, tune, bench, doctor, replay)


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        """A message that cannot be written does not change the exit status."""
        stream = file or sys.stderr
        if stream is None:
            return
        try:
            super()._print_message(message, stream)
            stream.flush()
        except OSError:
            _discard(stream)

    def print_help(self, file: Any = None) -> None:
        """As inherited, which says nothing of output that could not be written."""
        if file is None:
            print(self.format_help(), end="")
        else:
            super().print_help(file)


def main(argv: list[str] | None = None) -> int:
    """Run a command; bad use ends in one line on stderr and a non-zero exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that are no text in the stream's encoding are shown escaped
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        return _failed("standard output is closed")
    try:
        try:
            return _command(argv)
        finally:
            sys.stdout.flush()  # what does not fit is told here, not by the interpreter at exit
    except BaracudaError as error:
        return _failed(str(error))
    except BrokenPipeError:
        _discard(sys.stdout)
        return 0
    except OSError as error:
        _discard(sys.stdout)
        return _failed(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except KeyboardInterrupt:
        _failed("interrupted")
        return 130


def _failed(message: str) -> int:
    if sys.stderr is not None:
        try:
            print(f"error: {message}", file=sys.stderr, flush=True)
        except OSError:
            _discard(sys.stderr)
    return 1


def _discard(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: the interpreter writes it at exit, and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """A command line, understood but not run; a wrong one ends the process with status 2, as `argparse` does it."""
    parser = _Parser(
        prog="python -m baracuda_py",
        description="Fused ML ops as plans over raw CUDA.",
        epilog="exit status: 0, 1 on failure, 2 on wrong use",
    )
    parser.add_argument("--version", action="version", version=f"baracuda_py {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    names = [module.__name__.rpartition(".")[2] for module in COMMANDS]
    first = next((word for word in (sys.argv[1:] if argv is None else argv) if not word.startswith("-")), names[0])
    if first not in names:
        parser.error(f"no command {first!r}; {_meant(first, names)}")
    takes: dict[str, list[str]] = {}
    for name, module in zip(names, COMMANDS, strict=True):
        made = commands.add_parser(name, help=module.SAYS, description=module.SAYS)
        module.options(made)
        made.set_defaults(run=module.run)
        takes[name] = [text for action in made._actions for text in action.option_strings]
    options, rest = parser.parse_known_args(argv)
    if options.command is None and not rest:
        parser.print_help(sys.stderr)
        parser.exit(2, f"{parser.prog}: error: a command is missing\n")
    if rest and options.command == "explain" and not any(item.startswith("-") for item in rest):
        options.fields += rest  # fields after an option, which argparse leaves over
    elif rest:
        hint = _meant(rest[0], takes.get(options.command, []))
        parser.error(f"{options.command or ''} does not take {' '.join(rest)}; {hint}".strip())
    return options


def _meant(word: str, known: list[str]) -> str:
    """What a word may be a slip of; else all that there is."""
    found = near(word.lower(), known)
    return f"did you mean {' or '.join(found)}?" if found else f"there are {', '.join(known)}"


def _command(argv: list[str] | None) -> int:
    options = parsed(argv)
    return int(options.run(options))
