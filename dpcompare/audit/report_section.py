"""What the report page says of an audit: a table and sentences; the figure is in the folder."""

from collections.abc import Collection, Sequence
from pathlib import Path

from dpcompare.audit import record
from dpcompare.audit.finding import (
    HOLDS,
    NOT_ATTACKED,
    NOTHING_CLAIMED,
    UNDECIDED,
    VIOLATED,
    Finding,
)
from dpcompare.audit.text import digits, sentences
from dpcompare.report_tables import NONE, Table

VERDICTS = {
    HOLDS: "holds",
    VIOLATED: "VIOLATED",
    UNDECIDED: "undecided",
    NOTHING_CLAIMED: "nothing claimed",
    NOT_ATTACKED: "not attacked",
}


def audit_table(findings: Sequence[Finding]) -> Table | None:
    """The findings as a table of the page; None where the folder has not been audited."""
    if not findings:
        return None
    head = ["Curve", "Epsilon", "Verdict", "It protects", "Claimed", "Delta", "Lower bound",
            "To expect at the claim", "To expect at half the noise"]  # fmt: skip
    caption = (
        "Lower bounds on epsilon by attack, each with 95% confidence, against the epsilon claimed "
        "of what was attacked"
    )
    return Table(caption, head, [_row(finding) for finding in findings])


def audit_sentences(findings: Sequence[Finding], trials: Collection[str]) -> list[str]:
    """What was attacked, and whether that is what the page shows.

    Args:
        findings: of the folder.
        trials: identities of the trials that the page is about.
    """
    told = sentences(findings)
    audited = {trial for finding in findings for trial in finding.trials}
    if audited - set(trials):
        told.append("Some trials that were audited are not those of this page: audit again.")
    return told


def read(folder: Path) -> list[Finding]:
    """The findings of a results folder; none where it has not been audited."""
    return record.read(folder)


def _row(finding: Finding) -> list[str]:
    claims = finding.verdict not in (NOTHING_CLAIMED, NOT_ATTACKED)
    epsilon = "∞" if finding.asked == float("inf") else f"{finding.asked:g}"
    numbers = (finding.lower_bound, finding.expected_at_claim, finding.expected_if_half)
    return [
        finding.label,
        epsilon,
        VERDICTS[finding.verdict],
        f"one {finding.unit}, {finding.neighboring}" if finding.unit else NONE,
        f"{finding.epsilon:.3g}" if claims else NONE,
        f"{finding.delta:.2g}" if claims else NONE,
        *[NONE if number is None else digits(number) for number in numbers],
    ]
