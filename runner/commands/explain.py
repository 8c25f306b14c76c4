"""``explain``: what an error code means."""

import re

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..diagnostics.explanations import EXPLANATIONS, explain
from ..diagnostics.hints import nearest
from ..reporting.outcome import Outcome

NAME = "explain"
HELP = "say what an error code means and what to do; without a code, list them all"


def arguments(parser) -> None:
    parser.add_argument("code", nargs="?", metavar="CODE", help="as printed in the brackets of an error: CW304")


def execute(args) -> Outcome:
    if args.code is None:
        known = [{"code": code, "title": entry.title, "exit": entry.exit} for code, entry in codes.CODES.items()]
        return Outcome({"codes": known}, [f"{entry['code']}  {entry['title']}" for entry in known])
    code = find(args.code)
    known, text = codes.CODES[code], EXPLANATIONS[code]
    document = {"code": code, "title": known.title, "exit": known.exit}
    return Outcome({**document, "why": text.why, "example": text.example, "fix": text.fix}, [explain(code)])


def find(text: str) -> str:
    """The code that was meant: CW304, cw304, 304 or error[CW304]. Else an error that names the nearest."""
    digits = re.fullmatch(r"\s*(?:(?:error|warning)?\[?CW)?(\d{1,9})\]?:?\s*", text, re.IGNORECASE)
    code = f"CW{digits[1]}" if digits else text
    if code in codes.CODES:
        return code
    if digits:
        close = min(codes.CODES, key=lambda each: abs(int(each[2:]) - int(digits[1])))
    else:
        titles = {known.title: each for each, known in codes.CODES.items()}
        close = titles.get(nearest(text, titles))
    help = f"did you mean {close} ({codes.CODES[close].title})?" if close else "`chunkwise explain` lists them all"
    raise ChunkwiseError(Diagnostic(codes.UNKNOWN_CODE, f"there is no error code {quoted(text)}", help=help))
