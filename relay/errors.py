"""Every error this product raises on purpose, split by what its reader must do.

    RelayError                 exit status
     ├── ConfigError             2   a setting, argument or file is wrong: correct it
     ├── MissingTool             3   Java, a package or a jar is not there: install it
     ├── Unavailable             4   a server did not answer within the wait allowed
     ├── Refused                 5   a server answered no: rights, missing topic or table
     ├── ContractBroken          6   recorded and found state disagree: a human decides
     ├── Fenced                  7   another process runs under this identity
     └── NotExactlyOnce          1   a check of the result says no

`relay` and `loader` print the message, then the next step, then where a document says
more, and exit with the status; a stack trace is only for what is not in this tree
(status 70).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

EXIT_BUG = 70
"""Exit status of what no one foresaw (EX_SOFTWARE of sysexits.h); the watchdog's is 1."""


class ErrorPage(StrEnum):
    """Documents and sections that say more about an error, as `relay docs` takes them."""

    START = "troubleshooting#a-program-does-not-start-or-ended"
    ACCEPT = "rewind#accept"
    REWIND = "rewind#rewind"
    GAP = "topics#when-the-past-is-gone"
    LEDGER = "backup#other-losses"
    LEDGER_TABLE = "parked#the-ledger-on-a-clickhouse-cluster"
    RESTORED_REWIND = "backup#a-backup-that-is-older-than-a-rewind"
    WRONG_TOPIC = "dead-letters#the-wrong-topic"
    LETTER = "dead-letters#the-record"
    PARKED = "parked#parked"
    REPLICAS = "clusters#replicas-of-clickhouse"
    REPEATED_INSERT = "clickhouse-versions#what-the-loader-checks-by-itself"
    CREDENTIALS = "security#secrets"
    PRODUCER = "api#write-rows-in-a-transaction"


PERHAPS_NO_MESSAGE = (
    "if the source is written in transactions, perhaps only their markers and aborted records, "
    "which are no messages"
)
"""Of offsets between a floor and the log's first one: nobody can tell any more what they were."""
NEW_APP = (
    "begin under a new app name, which knows nothing of the old one: before its first start, "
    "`relay schema seed CONFIG --from-app OLD --run` gives it the old field numbers, or values go "
    "into wrong columns; with source.start earliest it loads again what the topic still holds, "
    "with latest it skips what was not read yet"
)
"""The last resort, with its price: nothing starts at an offset of somebody's choice."""
NUMBERS_LOST = (
    "restore the topic from a backup; or stop the app's relays, delete what is left of the topic, "
    "and give the numbers anew from the producers' .proto files, all in one call: `relay schema "
    "seed CONFIG FILE... --run`"
)
"""Where field numbers are gone: a relay would number the columns in their order of today."""


_NEXT, _MORE = "\n  next: ", "\n  more: "
_DOCS = "relay docs "


class RelayError(Exception):
    """Base of all; never raised itself.

    Args:
        message: what happened, with the offending value.
        next_step: what the reader does about it, as an imperative sentence.
        page: that says more; empty: that of the class, which may have none.
    """

    exit_code = 1
    page = ""

    def __init__(self, message: str, next_step: str = "", *, page: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.page = page or self.page

    @property
    def more(self) -> str:
        """Return the command that prints the page; empty: there is none."""
        return f"{_DOCS}{self.page}" if self.page else ""

    def __str__(self) -> str:
        step = f"{_NEXT}{self.next_step}" if self.next_step else ""
        return f"{self.message}{step}{f'{_MORE}{self.more}' if self.more else ''}"

    @classmethod
    def printed(cls, text: str) -> Self:
        """Return the error that another process printed as this text."""
        rest, more = _split(text, _MORE)
        message, step = _split(rest, _NEXT)
        return cls(message, step, page=more.removeprefix(_DOCS))


def _split(text: str, mark: str) -> tuple[str, str]:
    """Return what stands before and behind the last mark; all and nothing where there is none."""
    before, found, behind = text.strip("\n").rpartition(mark)
    return (before, behind) if found else (behind, "")


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
    """Return how to install an extra of setup.cfg; no package registry has the product."""
    return f"pip install '.[{extra}]' in the source directory, or 'WHEEL[{extra}]'"


class Unavailable(RelayError):
    """A server did not answer within the wait allowed."""

    exit_code = 4


class ClickHouseAway(Unavailable):
    """It is ClickHouse that did not answer, or cannot answer this just now."""


class Refused(RelayError):
    """A server answered, and the answer was no.

    Attributes:
        code: of Kafka's answer; 0 where it was not Kafka's.
    """

    exit_code = 5

    def __init__(self, message: str, next_step: str = "", *, code: int = 0, page: str = "") -> None:
        super().__init__(message, next_step, page=page)
        self.code = code


class WrongCredentials(Refused):
    """A server refused the user, the password or the certificate itself.

    Where they come from files, another one may be there soon.
    """

    page = ErrorPage.CREDENTIALS


class ContractBroken(RelayError):
    """Recorded and found state disagree; going on could lose or double rows."""

    exit_code = 6
    page = ErrorPage.START


class Fenced(RelayError):
    """Another process runs under this transactional id or group instance id."""

    exit_code = 7
    page = ErrorPage.START
