"""The error of libraries' stand-ins."""


class HostError(Exception):
    """What bindings raise where a status is not 0."""

    status = 7
