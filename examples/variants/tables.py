"""The README of this folder, for the device at hand: what each variant is, and what each of its stages takes.

    python examples/variants/tables.py [--workload B1_T8192_H96_D128] > examples/variants/README.md

Options go to `chunkwise run`, which verifies a variant before it times it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from chunkwise.runner import load

INTRO = """# Variants without Python

Each file is a variant of at most 30 lines. `python examples/variants/tables.py > examples/variants/README.md` times
them again; times are in ms, each stage alone, then the whole op. `chunkwise run FILE` prints more of the same."""


def section(file: Path, options: list[str]) -> str:
    """Raises SystemExit, as its run ended."""
    command = [sys.executable, "-m", "chunkwise.runner", "run", file, "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout)
    if not report["ok"]:
        for error in report["errors"]:
            print(f"{file.name}: error[{error['code']}]: {error['message']}", file=sys.stderr)
        raise SystemExit(done.returncode)
    spec, device = load(str(file)).spec, report["environment"].get("gpu") or report["environment"]["cpu"]
    comment = [line[2:] for line in file.read_text().splitlines() if line.startswith("# ") and "$schema" not in line]
    why = "\n".join(line for line in comment if not line.startswith("  chunkwise"))
    sizes = ", ".join(f"{axis}={n}" for axis, n in report["axes"].items())
    rows = [(x["id"], f"`{x['stage']}`", x["latency_ms"], f"{x['share_pct']:.0f} %") for x in report["stages"]]
    rows += [("end to end", "", report["end_to_end_ms"], "")]
    table = "\n".join(f"| {id} | {stage} | {ms:.3g} | {share} |" for id, stage, ms, share in rows)
    return f"""## {spec.name}\n\n{spec.summary}.\nSource: {spec.source}.\n{why}\n
{report["dtype"]}, {device}, {report["backend"]}, {sizes};
{report["timed_by"]}; verified first.\n
| stage | uses | ms | share |\n|---|---|--:|--:|\n{table}"""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False,
                                     epilog="any option goes to chunkwise run")  # fmt: skip
    _, options = parser.parse_known_args(argv)
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    print("\n\n".join([INTRO, *(section(file, options) for file in files)]))


if __name__ == "__main__":
    main()
