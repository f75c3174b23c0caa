"""Every error this product raises on purpose, split by what its reader must do.

    RelayError                 exit status
     ├── ConfigError             2   a setting, argument or file is wrong: correct it
     ├── MissingTool             3   Java, a package or a jar is not there: install it
     ├── Unavailable             4   a server did not answer within the wait allowed
     ├── Refused                 5   a server answered no: rights, missing topic or table
     ├── ContractBroken          6   recorded and found state disagree: a human decides
     ├── Fenced                  7   another process runs under this identity
     └── NotExactlyOnce          1   a check of the result says no

`relay` and `loader` print the message, then the next step, and exit with the
status; a stack trace is only for what is not in this tree (status 70).
"""

from __future__ import annotations

EXIT_BUG = 70
"""Exit status of what no one foresaw (EX_SOFTWARE of sysexits.h); the watchdog's is 1."""


class RelayError(Exception):
    """Base of all; never raised itself.

    Args:
        message: what happened, with the offending value.
        next_step: what the reader does about it, as an imperative sentence.
    """

    exit_code = 1

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.next_step}" if self.next_step else self.message


class NotExactlyOnce(RelayError):
    """A comparison found rows missing, doubled or different."""

    exit_code = 1


class ConfigError(RelayError):
    """A setting, argument or input file is wrong."""

    exit_code = 2


class MissingTool(RelayError):
    """Java, a Python package or a jar is not there, or too old."""

    exit_code = 3


def install(extra: str) -> str:
    """Return how to install what is missing; no package registry has the product.

    Args:
        extra: of setup.cfg, as `demo`.
    """
    return f"pip install '.[{extra}]' in the source directory, or 'WHEEL[{extra}]'"


class Unavailable(RelayError):
    """A server did not answer within the wait allowed."""

    exit_code = 4


class Refused(RelayError):
    """A server answered, and the answer was no.

    Attributes:
        code: of Kafka's answer; 0 where it was not Kafka's.
    """

    exit_code = 5

    def __init__(self, message: str, next_step: str = "", *, code: int = 0) -> None:
        super().__init__(message, next_step)
        self.code = code


class WrongCredentials(Refused):
    """A server refused the user, the password or the certificate itself.

    Where they come from files, another one may be there soon.
    """


class ContractBroken(RelayError):
    """Recorded and found state disagree; going on could lose or double rows."""

    exit_code = 6


class Fenced(RelayError):
    """Another process runs under this transactional id or group instance id."""

    exit_code = 7
