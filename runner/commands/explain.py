"""``explain``: what an error code means, and what a pipeline file may hold."""

import re

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..diagnostics.explanations import EXPLANATIONS, explain
from ..diagnostics.hints import nearest
from ..reporting.outcome import Outcome
from ._explain_pages import PAGES

NAME = "explain"
HELP = "say what an error code means, what a pipeline file may hold, or what bench prints; alone, list it all"


def arguments(parser) -> None:
    parser.add_argument(
        "about", nargs="?", metavar=f"CODE|{'|'.join(PAGES)}", help="a code as an error prints it, CW304, or a page"
    )


def execute(args) -> Outcome:
    if args.about is None:
        known = [{"code": code, "title": entry.title, "exit": entry.exit} for code, entry in codes.CODES.items()]
        lines = [f"{entry['code']}  {entry['title']}" for entry in known]
        pages = f"\npages: {', '.join(f'`chunkwise explain {name}`' for name in PAGES)}"
        return Outcome({"codes": known, "pages": list(PAGES)}, [*lines, pages])
    if args.about in PAGES:
        return Outcome(*PAGES[args.about]())
    code = find(args.about)
    known, text = codes.CODES[code], EXPLANATIONS[code]
    document = {"code": code, "title": known.title, "exit": known.exit}
    return Outcome({**document, "why": text.why, "example": text.example, "fix": text.fix}, [explain(code)])


def find(text: str) -> str:
    """The code that was meant: CW304, cw304, 304 or error[CW304]. Else an error that names the nearest."""
    digits = re.fullmatch(r"\s*(?:(?:error|warning)?\[?CW)?(\d{1,9})\]?:?\s*", text, re.IGNORECASE)
    code = f"CW{digits[1]}" if digits else text
    if code in codes.CODES:
        return code
    help = f"did you mean {close}?" if (close := closest(text, digits)) else "`chunkwise explain` lists them all"
    raise ChunkwiseError(Diagnostic(codes.UNKNOWN_CODE, f"there is no error code {quoted(text)}", help=help))


def closest(text: str, digits: re.Match | None) -> str | None:
    """The code or page that was probably meant; a code with its title."""
    if digits:
        code = min(codes.CODES, key=lambda each: abs(int(each[2:]) - int(digits[1])))
    else:
        titles = {known.title: each for each, known in codes.CODES.items()}
        close = nearest(text, [*titles, *PAGES])
        code = titles.get(close, close)
    return f"{code} ({codes.CODES[code].title})" if code in codes.CODES else code
