"""What ``why`` answers: lines, each with its place, in sections."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..diagnostics.marks import Mark
from ..diagnostics.render_errors import place, place_as_json


@dataclass(frozen=True)
class Line:
    """One step. mark: the place that it rests on; the word there stands in the text.

    fact: the name of what it establishes. because: the names of what it follows from.
    """

    text: str
    mark: Mark | None
    fact: str
    because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """subject: its name. kind: what it is, in words. summary: what is known of it, in one line.

    sections: title -> lines.
    """

    subject: str
    kind: str
    summary: str
    sections: dict[str, Sequence[Line]]


def answer_text(answer: Answer) -> list[str]:
    """The sections that hold something; the places in a column of their own."""
    lines = [f"{answer.subject}: {answer.kind}, {answer.summary}"]
    places = [place(line.mark) for section in answer.sections.values() for line in section if line.mark]
    width = max(map(len, places), default=0)
    for title, section in answer.sections.items():
        if section:
            lines += ["", title]
            lines += [f"  {place(line.mark) if line.mark else '':{width}}  {line.text}" for line in section]
    return lines


def answer_document(answer: Answer) -> dict:
    return {
        "subject": answer.subject,
        "kind": answer.kind,
        "summary": answer.summary,
        **{title: [line_document(line) for line in section] for title, section in answer.sections.items()},
    }


def line_document(line: Line) -> dict:
    return {"fact": line.fact, "because": list(line.because), "text": line.text, **place_as_json(line.mark)}
