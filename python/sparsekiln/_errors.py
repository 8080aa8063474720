"""The exceptions of this package."""

_KINDS = ("", "invalid argument", "compile", "driver", "file", "cache", "internal")


class Error(RuntimeError):
    """What went wrong: what was asked, what is wrong, and what would work.

    kind: "invalid argument", "compile", "driver", "file", "cache" or "internal".
    log: the compiler's whole log, if there is one.
    """

    def __init__(self, message: str, kind: str = "internal", log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.log = log

    def __reduce__(self) -> tuple[type["Error"], tuple[str, str, str]]:
        return type(self), (str(self), self.kind, self.log)


class InvalidArgument(Error, ValueError):
    """The request is invalid; asking again will not help."""


def error_of(status: int, message: str, log: str) -> Error:
    """The exception for a status of the C interface."""
    kind = _KINDS[status]
    return (InvalidArgument if kind == "invalid argument" else Error)(message, kind, log)
