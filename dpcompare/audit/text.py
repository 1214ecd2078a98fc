"""Findings in words: the table of the terminal, and the sentences under any table or figure."""

import math
import textwrap
from collections.abc import Sequence

from dpcompare.audit.finding import NOT_ATTACKED, NOTHING_CLAIMED, VIOLATED, Finding

WIDTH = 100
HEAD = ("attacked", "claimed", "delta", "bound", "at claim", "if half", "verdict")
LEGEND = (
    "bound: the largest epsilon that the attack refutes at this delta, with 95% confidence. A "
    "claim is called violated where it is refuted with 99.9% confidence, all claims together.",
    "at claim: the bound to expect of an ideal mechanism that spends the claim.",
    "if half: the bound to expect if its noise were half (of labels: if their epsilon were "
    "twice). Where this is not above the claim, even that would go unnoticed.",
    "A bound below the claim is evidence for it, and no proof: another attack may find more.",
)


def table(findings: Sequence[Finding]) -> str:
    """All findings as plain text: a line each, what was attacked, and what must be known."""
    rows = [HEAD, *map(_cells, findings)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if place in (0, len(HEAD) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    blocks = ["\n".join(lines), _wrapped(LEGEND), _wrapped(sentences(findings))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def sentences(findings: Sequence[Finding]) -> list[str]:
    """What was attacked and how, and what was not; equal things are said once."""
    told: dict[str, dict[str, list[Finding]]] = {}
    for finding in findings:
        for text in [
            _attack(finding),
            _unit(finding),
            _excess(finding),
            *finding.notes,
            _control(finding),
        ]:
            if text:
                told.setdefault(text, {}).setdefault(finding.label, []).append(finding)
    return [f"{_named(of_label, findings)}: {text}." for text, of_label in told.items()]


def digits(value: float | None) -> str:
    """A number to three digits; a dash where there is none."""
    if value is None:
        return "-"
    return "none" if math.isinf(value) else f"{value:.3g}"


def shown_verdict(finding: Finding) -> str:
    """The verdict, with the advantage of the attack where nothing is claimed."""
    if finding.verdict != NOTHING_CLAIMED or finding.advantage is None:
        return finding.verdict
    return f"{NOTHING_CLAIMED} (advantage {finding.advantage:.2f})"


def violations(findings: Sequence[Finding]) -> list[str]:
    """One phrase for each claim that is refuted."""
    return [
        f"{finding.label} claims epsilon {digits(finding.epsilon)} at delta {finding.delta:.2g}, "
        f"and the attack shows more than {digits(finding.lower_bound)}"
        for finding in findings
        if finding.verdict == VIOLATED
    ]


def _cells(finding: Finding) -> tuple[str, ...]:
    claims = finding.verdict not in (NOTHING_CLAIMED, NOT_ATTACKED)
    return (
        finding.label,
        f"{finding.epsilon:.3g}" if claims else "-",
        f"{finding.delta:.2g}" if claims else "-",
        digits(finding.lower_bound),
        digits(finding.expected_at_claim),
        digits(finding.expected_if_half),
        shown_verdict(finding),
    )


def _attack(finding: Finding) -> str:
    """What was attacked, of a finding."""
    if finding.attack == "label canaries":
        return (
            f"one release of {finding.canaries:,} labels, each 0 or the largest by a fair coin, "
            f"read by an attacker who knows the mechanism ({finding.method})"
        )
    if finding.attack != "gradient canaries":
        return ""
    at = finding.schedule
    size = at["group_size"]
    groups = f" in groups of {size}" if size > 1 else ""
    return (
        f"one run of {at['steps']:,} steps with {finding.canaries:,} canaries, {at['examples']:,} "
        f"rows{groups}, each drawn with probability {at['sampling_probability']:.3g}; the attacker "
        f"sees all parameters before and after ({finding.method})"
    )


def _unit(finding: Finding) -> str:
    if finding.unit is None:
        return ""
    return f"the claim protects one {finding.unit} under {finding.neighboring}"


def _excess(finding: Finding) -> str:
    """That another epsilon was asked for than is claimed of what was attacked."""
    if finding.unit is None or abs(finding.epsilon / finding.asked - 1) < 0.01:
        return ""
    return "what was attacked claims another epsilon than was asked for (audit.json holds both)"


def _control(finding: Finding) -> str:
    if finding.verdict != NOTHING_CLAIMED or finding.advantage is None:
        return ""
    return (
        "nothing is claimed, so nothing can be violated; that the attack succeeds shows that it "
        "works"
    )


def _named(of_label: dict[str, list[Finding]], findings: Sequence[Finding]) -> str:
    """Labels, with epsilons where a text is not about all findings of a label."""
    names = []
    for label, about in of_label.items():
        everything = [finding for finding in findings if finding.label == label]
        epsilons = ", ".join(f"{finding.asked:g}" for finding in about)
        names.append(label if len(about) == len(everything) else f"{label} at epsilon {epsilons}")
    return "; ".join(names)


def _wrapped(texts: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in texts)
