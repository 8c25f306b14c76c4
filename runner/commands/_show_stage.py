"""One stage in words: what its file promises."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...stages import _laws
from ...stages._contract import Contract, Launcher, Port
from ...stages._units import UNITS
from ..backward.vjp_stage import gradient_spec
from ..compiling.compile_cases import ARCHITECTURES, usual_sizes
from ..diagnostics.render_errors import shown_path
from ..stage_files.own_code import configurations, refusal
from ..stage_files.stage_library import Stage
from ._tables import table

DTYPES = {"io": "io", "f32": "f32", "int": "int32 or int64", "q8": "int8 or fp8 (e4m3)"}
VARIABLE = re.compile(r"\{(\w+)\}")
DTYPES_LINE = "io: the pipeline's dtype. f32: float64 where io is float64."


def stage_text(stage: Stage) -> list:
    """docstring, ports, units and laws in words, the rest of the contract, launchers, gradient."""
    contract = stage.contract
    parts = [f"{stage.name}  ({shown_path(stage.file)})\n", docstring(stage) + "\n"]
    parts += [port_table("inputs", contract.inputs), "", port_table("outputs", contract.outputs), "", DTYPES_LINE]
    parts += named_lines("units", unit_words(contract)) + named_lines("values", law_words(contract))
    parts += contract_lines(contract)
    return [*parts, "", launcher_table(stage), "", gradient(stage)]


def docstring(stage: Stage) -> str:
    tree = ast.parse(Path(stage.file).read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or "(no docstring)"


def port_table(title: str, ports: Mapping[str, Port]):
    columns = dict.fromkeys((title, "shape", "dtype", "unit", "values", ""), "left")
    return table("", columns, (port_row(name, port) for name, port in ports.items()))


def port_row(name: str, port: Port) -> tuple[str, ...]:
    notes = (*(("optional",) if port.optional else ()), *((port.doc,) if port.doc else ()))
    return name, f"[{port.shape}]", DTYPES[port.dtype], port.unit or "-", port.where or "-", "; ".join(notes)


def ports(contract: Contract) -> Iterator[Port]:
    yield from contract.inputs.values()
    yield from contract.outputs.values()


def unit_words(contract: Contract) -> dict[str, str]:
    """Every unit that a port can have, with its law; for a variable, what fixes it."""
    patterns = dict.fromkeys(port.unit for port in ports(contract) if port.unit)
    words = {unit: UNITS[unit] for pattern in patterns for unit in units_like(pattern)}
    for variable in dict.fromkeys(name for pattern in patterns for name in VARIABLE.findall(pattern)):
        if variable in contract.presence:
            port_name, present, absent = contract.presence[variable]
            words[f"{{{variable}}}"] = f"{present} with {port_name}, {absent} without"
        else:
            words[f"{{{variable}}}"] = "whatever the edges bring, the same at every port"
    return words


def units_like(pattern: str) -> list[str]:
    """The units that a pattern stands for; none when it stands for any."""
    parts = VARIABLE.split(pattern)[::2]
    form = re.compile("[^/]+".join(map(re.escape, parts)))
    return [unit for unit in UNITS if form.fullmatch(unit)] if any(parts) else []


def law_words(contract: Contract) -> dict[str, str]:
    laws = dict.fromkeys(port.where for port in ports(contract) if port.where)
    return {law: _laws.parse(law).words for law in laws}


def named_lines(title: str, words: Mapping[str, str]) -> list[str]:
    return ["", title, *(f"  {name}: {meaning}" for name, meaning in words.items())] if words else []


def contract_lines(contract: Contract) -> list[str]:
    lines = [""]
    for name, default in contract.params.items():
        lines.append(f"param     {name}" + (" (a pipeline must bind it)" if default is None else f" = {default}"))
    lines += [f"requires  {text}" for text in contract.requires]
    return [*lines, f"flops     {contract.flops}"]


def launcher_rows(stage: Stage) -> Iterator[dict]:
    """Every launcher with its shipped configurations, or why it refuses, for each GPU architecture."""
    axes = usual_sizes(stage)
    for direction, launchers in (("forward", stage.launchers), ("gradient", stage.vjp_launchers)):
        for launcher in launchers:
            for arch in ARCHITECTURES:
                device = f"sm_{arch}"
                found = shipped(stage, launcher, axes, device)
                yield {"of": direction, "launcher": launcher.name, "device": device, **found}


def shipped(stage: Stage, launcher: Launcher, axes: Mapping[str, int], device: str) -> dict:
    if refused := refusal(stage, launcher, axes, device):
        return {"configs": [], "refused": refused}
    return {"configs": [dict(each) for each in configurations(stage, launcher, axes, device)], "refused": None}


def launcher_table(stage: Stage):
    """Architectures that ship the same configurations share a row."""
    rows = {}
    for row in launcher_rows(stage):
        text = row["refused"] or " | ".join(map(config_text, row["configs"]))
        rows.setdefault((row["of"], row["launcher"], text), []).append(row["device"])
    if not rows:
        return "no kernel: the reference runs on every device"
    axes = usual_sizes(stage)
    sizes = " ".join(f"{axis}={axes[axis]}" for axis in ("K", "V", "C") if axis in stage.axis_names)
    columns = dict.fromkeys(("launcher", "of", "devices", f"configurations{f' for {sizes}' if sizes else ''}"), "left")
    cells = ((name, of, " ".join(devices), text) for (of, name, text), devices in rows.items())
    return table("", columns, cells)


def config_text(config: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def gradient(stage: Stage) -> str:
    if stage.vjp is None:
        return "gradient: autograd through the reference" if stage.gradient == "autograd" else "gradient: none"
    if stage.vjp_stages:
        return f"gradient: {', '.join(entry.use for entry in gradient_spec(stage).stages.values())}"
    kernels = ", ".join(launcher.name for launcher in stage.vjp_launchers)
    return f"gradient: vjp in the file, {f'kernels: {kernels}' if kernels else 'no kernel'}"


def port_documents(ports: Iterable[tuple[str, Port]]) -> list[dict]:
    return [
        {
            "name": name,
            "shape": list(port.axes),
            "dtype": port.dtype,
            "unit": port.unit,
            "where": port.where,
            "optional": port.optional,
            "doc": port.doc,
        }
        for name, port in ports
    ]


def stage_document(stage: Stage) -> dict:
    contract = stage.contract
    return {
        "stage": stage.name,
        "file": stage.file,
        "doc": docstring(stage),
        "inputs": port_documents(contract.inputs.items()),
        "outputs": port_documents(contract.outputs.items()),
        "units": unit_words(contract),
        "values": law_words(contract),
        "params": dict(contract.params),
        "requires": list(contract.requires),
        "flops": contract.flops,
        "launchers": list(launcher_rows(stage)),
        "gradient": stage.gradient,
    }
