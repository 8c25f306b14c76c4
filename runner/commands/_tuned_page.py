"""The page ``explain tuned``: what the file of ``tune`` holds, and when it counts."""

from textwrap import fill

from ..planning.tuned import COUNTS, VARIABLE
from ..planning.tuned_file import ENTRY, HEAD
from ._tables import table

WIDTH = 110
PARAGRAPHS = (
    f"{VARIABLE}=FILE makes calls and commands run the configurations that `chunkwise tune` wrote to FILE; set it "
    "before the first call. Without it the first configuration that ships runs: nothing is tuned at a call.",
    "An entry counts for one device, by its name, and one version of Triton; for one kernel: its stage (NAME.vjp is "
    "the gradient's), launcher, IO dtype and those sizes that kernels are compiled for. "
    f"{', '.join(sorted(COUNTS))} are none of them: they change no configuration, and so no bits.",
    "What does not hold here is left out, and said once, as a warning from Python and on stderr of commands: a file of "
    "other machines, a stage whose code is another one (its file, or what it imports of stages and kernels), a "
    "configuration with other names than those that ship. Tables say `tuned` where an entry runs.",
    "tune tries what ships and then what is one step away from the best so far, in one number: tiles, num_warps, "
    "num_stages. A configuration must keep the budget that verify holds its stage to, on the device; the best one "
    "must be faster than the first that ships by more than the noise of a race of the two. Each runs in a child "
    "process, and one that fails, errs, hangs or ends its process is a row of the table.",
)


def tuned_page() -> tuple[dict, list]:
    """(the JSON, the text) on the file of tuned configurations."""
    rows = [(name, key.kind.words if hasattr(key.kind, "words") else "NAME: a number", key.doc)
            for name, key in ENTRY.keys.items()]  # fmt: skip
    text = [
        *(f"{fill(each, WIDTH)}\n" for each in PARAGRAPHS),
        "machines.DEVICE.KERNEL has these keys:",
        "",
        table("", dict.fromkeys(("key", "what stands there", "what it is"), "left"), rows),
    ]
    keys = [{"key": name, "value": value, "doc": doc} for name, value, doc in rows]
    return {"variable": VARIABLE, "head": HEAD.strip("# \n"), "keys": keys, "not_in_keys": sorted(COUNTS)}, text
