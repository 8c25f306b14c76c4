"""The colours of a picture: a light set, which a page and a printer get, and a dark one for viewers that ask for it.

Every text has a contrast of at least 4.5 on every ground that it stands on, in both sets (a test measures it).
"""

PAGE = "#fefefe"
PHASE = "#f6f8fa"
TEXT = "#1f2328"
FAINT_TEXT = "#4a535e"
UNIT = "#0a58b0"
LINE = "#6e7884"
FAINT_LINE = "#b3bac2"
STAGE = "#f3f4f6"
INPUT = "#eaf3fd"
INPUT_LINE = "#3d6ea8"
OUTPUT = "#e9f6ec"
OUTPUT_LINE = "#39804c"
BAR = "#8f4a0e"
TRACK = "#e7d8c6"
ADDED = "#d8f3df"
ADDED_LINE = "#1a7f37"
REMOVED = "#fbe3e0"
REMOVED_LINE = "#b3261e"
CHANGED = "#fdf2c8"
CHANGED_LINE = "#8a5a00"
HEAT = ("#faf6f0", "#fdebd3", "#fcdcb4", "#facd9a", "#f7bd80")
"""Ground of a stage by its share of the time, see ``heat``."""
HEAT_STEPS = (0.05, 0.15, 0.3, 0.5)

DARK = {
    PAGE: "#0d1117",
    PHASE: "#151b23",
    TEXT: "#e6edf3",
    FAINT_TEXT: "#aeb6c1",
    UNIT: "#79b8ff",
    LINE: "#9aa4af",
    FAINT_LINE: "#4a525c",
    STAGE: "#1c2128",
    INPUT: "#12233a",
    INPUT_LINE: "#5d93d1",
    OUTPUT: "#12291a",
    OUTPUT_LINE: "#55a86c",
    BAR: "#f0a35c",
    TRACK: "#4a4038",
    ADDED: "#10331c",
    ADDED_LINE: "#56d364",
    REMOVED: "#3a1613",
    REMOVED_LINE: "#ff7b72",
    CHANGED: "#37290a",
    CHANGED_LINE: "#e3b341",
    HEAT[0]: "#211d18",
    HEAT[1]: "#30251a",
    HEAT[2]: "#402c18",
    HEAT[3]: "#4a3014",
    HEAT[4]: "#57350f",
}
"""Light colour -> its counterpart."""


CHANGES = {"added": (ADDED, ADDED_LINE), "removed": (REMOVED, REMOVED_LINE), "changed": (CHANGED, CHANGED_LINE)}
"""Ground and line of what two graphs do not have in common."""


def heat(share: float) -> str:
    """The ground for a share of the time between 0 and 1."""
    return HEAT[sum(share >= step for step in HEAT_STEPS)]
