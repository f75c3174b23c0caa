"""What a finding of the doctor is: every kind with its severity and why it matters; pure.

Judges receive facts and give findings made by `found`; here is the list of all that there
are, the order in which people read them, and the exit status that they add up to.
"""

# pure

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from relay.errors import NotExactlyOnce, Refused, Unavailable
from relay.operate.doctor import reasons

EXIT_WARNINGS = 8
"""Exit status where there are warnings and no error."""


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    """Rows would be lost, doubled or held up, or a program would not start: fix it first."""
    WARNING = "warning"
    """It works until something else fails."""
    NOTE = "note"
    """Worth knowing, or it could not be asked."""


class FindingKind(NamedTuple):
    """What all findings of one code have in common."""

    severity: Severity
    why: str


KINDS: Mapping[str, FindingKind] = {
    code: FindingKind(severity, why)
    for severity, whys in (
        (Severity.ERROR, reasons.ERRORS),
        (Severity.WARNING, reasons.WARNINGS),
        (Severity.NOTE, reasons.NOTES),
    )
    for code, why in whys.items()
}
"""Every kind of finding, by code; codes never change, so that scripts may rely on them."""

AWAY = frozenset({"kafka-away", "clickhouse-away"})
REFUSED = frozenset({"kafka-refused", "clickhouse-refused"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know.

    Attributes:
        severity: how bad.
        code: of KINDS.
        what: with the offending value.
        why: it matters.
        mend: the command or setting that fixes it; empty where there is nothing to do.
    """

    severity: Severity
    code: str
    what: str
    why: str
    mend: str

    def as_json(self) -> dict[str, str]:
        """Return the finding as JSON has it."""
        return {name: str(value) for name, value in asdict(self).items()}


def found(code: str, what: str, mend: str = "") -> Finding:
    """Return a finding of this kind."""
    kind = KINDS[code]
    return Finding(kind.severity, code, what, kind.why, mend)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort errors before warnings before notes, else as given; drop repetitions."""
    order = list(Severity)
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity))


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0: nothing or notes; 8: warnings; 1: errors; 4, 5: a server was away, or refused."""
    codes = {finding.code for finding in findings}
    severities = {KINDS[code].severity for code in codes}
    if codes & AWAY:
        return Unavailable.exit_code
    if codes & REFUSED:
        return Refused.exit_code
    if Severity.ERROR in severities:
        return NotExactlyOnce.exit_code
    return EXIT_WARNINGS if Severity.WARNING in severities else 0
