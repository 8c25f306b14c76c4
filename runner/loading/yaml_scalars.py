"""Plain scalars by the core schema of YAML 1.2."""

import re

NULL = re.compile(r"~|null|Null|NULL|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"[-+]?[0-9]+")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
NAN = re.compile(r"\.(nan|NaN|NAN)")

MAX_DIGITS = 40
"""A longer integer is no size and no constant of anything; Python reads it in quadratic time."""


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. Raises OverflowError for an integer of more than MAX_DIGITS characters."""
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text) or FALSE.fullmatch(text):
        return bool(TRUE.fullmatch(text))
    for pattern, base in ((INTEGER, 10), (OCTAL, 8), (HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                raise OverflowError(f"an integer of more than {MAX_DIGITS} digits")
            return int(text, 10) if base == 10 else int(text[2:], base)
    if FLOAT.fullmatch(text):
        return float(text)
    if INFINITY.fullmatch(text):
        return float("-inf" if text[0] == "-" else "inf")
    return float("nan") if NAN.fullmatch(text) else text
