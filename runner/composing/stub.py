"""The file of a stage that is still to be written: contract, docstring, and a reference made of the definition's lines.

The reference is slow and right: a value token by token at once, a state and an output by a loop over the tokens.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...stages._contract import Port
from .missing import Missing
from .stub_body import Body

QUOTE = '"'


@dataclass(frozen=True)
class Stub:
    """name: of the stage. inputs, outputs: its ports. params: those that the pipeline binds. text: the file's."""

    name: str
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    params: tuple[str, ...]
    text: str

    @property
    def contract_words(self) -> str:
        inputs = ", ".join(f"{name} {port_words(port)}" for name, port in self.inputs.items())
        outputs = ", ".join(f"{name} {port_words(port)}" for name, port in self.outputs.items())
        params = f", with {', '.join(self.params)}" if self.params else ""
        return f"{inputs}{params} -> {outputs}"


def port_words(port: Port) -> str:
    parts = [f"[{port.shape}]", port.dtype, *([port.unit] if port.unit else []), *([port.where] if port.where else [])]
    parts += ["optional"] if port.optional else []
    return " ".join(parts)


def stub_of(missing: Missing, pipeline: str, taken: Sequence[str]) -> Stub:
    """taken: names of the stages that there are."""
    body = Body(missing)
    lines = body.lines()
    name = stage_name(missing, pipeline, taken)
    assigned = {line.partition(" = ")[0] for line in lines}
    axes = [axis for axis in used_names(lines, list(missing.case.sizes)) if axis not in assigned]
    if missing.kind != "value" and "C" not in axes:
        axes.append("C")
    params = tuple(used_names(lines, list(missing.case.params)))
    text = "\n".join([*docstring(missing), "", *imports(body.ports, missing.outputs), "",
                      *contract(body, params), "", "",
                      *function(body.ports, [*axes, *params], lines)]) + "\n"  # fmt: skip
    return Stub(name, dict(body.ports), dict(missing.outputs), params, text)


def stage_name(missing: Missing, pipeline: str, taken: Sequence[str]) -> str:
    """NAME_WHAT, WHAT being the name that the statement assigns, or its text in letters."""
    assigned = missing.reached.by_node.get(id(missing.node)) if missing.node is not None else None
    what = assigned.target if assigned and assigned.target else "_".join(missing.names) or missing.text
    if missing.kind == "value" and what == missing.text:
        decay = any((port.unit or "").startswith("log_decay") for port in missing.outputs.values())
        what = "decay" if decay else re.sub(r"\W+", "_", missing.text).strip("_")[:24].strip("_")
    name, number = f"{pipeline}_{what}"[:60], 2
    while name in taken:
        name, number = f"{pipeline}_{what}"[:60] + f"_{number}", number + 1
    return name


def used_names(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    return [name for name in dict.fromkeys(names) if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)]


def docstring(missing: Missing) -> list[str]:
    what = {
        "value": f"{missing.text}, as the definition of {missing.case.spec.name} has it.",
        "state": f"The state {missing.text} of {missing.case.spec.name}, entering each chunk and at the end.",
        "output": f"The output {missing.text} of {missing.case.spec.name}, read from the state that enters each chunk.",
    }[missing.kind]
    by_token = missing.kind != "value"
    lines = ["", *(f"    {each.line.text}" for each in Body(missing).needed())] if by_token else []
    still = " token by token" if by_token else ""
    return [
        f'"""{what}',
        *lines,
        "",
        f"Written by `chunkwise new --stub`: the reference is the definition{still}. Kernels and a vjp may follow.",
        '"""',
    ]


def imports(inputs: Mapping[str, Port], outputs: Mapping[str, Port]) -> list[str]:
    f32 = any(port.dtype == "f32" for port in (*inputs.values(), *outputs.values()))
    integer = any(port.dtype == "int" for port in (*inputs.values(), *outputs.values()))
    names = [*(["F32"] if f32 else []), *(["INT"] if integer else []), "Contract", "Port"]
    return ["import torch", "", f"from chunkwise.stages._contract import {', '.join(names)}"]


def contract(body: Body, params: Sequence[str]) -> list[str]:
    lines = ["CONTRACT = Contract(", "    inputs={"]
    lines += [f'        "{name}": {port_code(port)},' for name, port in body.ports.items()]
    lines += ["    },", "    outputs={"]
    lines += [f'        "{name}": {port_code(port)},' for name, port in body.missing.outputs.items()]
    lines.append("    },")
    if params:
        lines.append(f"    params={{{', '.join(f'{QUOTE}{name}{QUOTE}: None' for name in params)}}},")
    if body.repeated:
        lines.append(f"    requires=({' '.join(f'{QUOTE}{all} % {own} == 0{QUOTE},' for own, all in body.repeated)}),")
    return [*lines, ")"]


def port_code(port: Port) -> str:
    parts = [f'"{port.shape}"']
    parts += {"f32": ["F32"], "int": ["INT"], "q8": ["Q8"]}.get(port.dtype, [])
    parts += [f'unit="{port.unit}"'] if port.unit else []
    parts += [f'where="{port.where}"'] if port.where else []
    parts += ["optional=True"] if port.optional else []
    parts += [f'doc="{port.doc}"'] if port.doc else []
    return f"Port({', '.join(parts)})"


def function(ports: Mapping[str, Port], keywords: Sequence[str], lines: Sequence[str]) -> list[str]:
    shapes = ", ".join(f"{name} [{', '.join(port.axes)}]" for name, port in ports.items())
    names = ", ".join([*ports, *(["*", *keywords] if keywords else [])])
    return [f"def reference({names}):", f'    """{shapes}."""', *(f"    {line}" for line in lines)]
