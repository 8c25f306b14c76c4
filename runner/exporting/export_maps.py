"""The stages of an exported file that are expressions in edges: their text goes into the file, for no module has it."""

from collections.abc import Mapping

from ..graphs.graph import Graph, Node
from ..maps.function_source import function_source
from ..maps.kernel_source import kernel_source
from ..maps.layout import reductions
from ..maps.map_launch import by_row, scratch, tail
from ..maps.map_source import D, MapSource, indented
from .python_text import INDENT, Items, call, comment


def map_sources(joint: Graph) -> dict[str, MapSource]:
    """Entry -> the expression, for those that the graph has."""
    nodes = (node for node in joint.nodes.values() if node.phase == "forward" and is_map(node))
    return {node.id: node.stage.reference.source for node in nodes}


def is_map(node: Node) -> bool:
    return isinstance(getattr(node.stage.reference, "source", None), MapSource)


def entry_of(node: Node) -> str:
    """The entry that a node, its rebuilt copy or its gradient comes from."""
    return node.id.partition(".")[0]


def map_imports(code: str) -> tuple[list[str], dict[str, list[str]]]:
    """(imports of Python's own, names by module of stages and kernels) that the texts of expressions need."""
    where = "kernels" if "@triton.jit" in code else "stages"
    names = {where: ["_maps"]} if "_maps." in code else {}
    if "@triton.jit" in code:
        names["stages"] = ["_map_launches"]
        names["stages._contract"] = [name for name in ("Launcher", "Port") if f"{name}(" in code]
    return ["from types import SimpleNamespace"], names


def map_lines(sources: Mapping[str, MapSource], spoken: Mapping[str, str], kernels: bool) -> list[str]:
    """Every expression's functions or kernels, and what run.evaluate and run.launch find them under."""
    lines = []
    for id, source in sources.items():
        name = spoken[id]
        text = kernel_part(source, name) if kernels else function_part(source, name)
        lines += [*comment(f"{id}: {source.text}", ""), *text, "", ""]
    return lines


def function_part(source: MapSource, name: str) -> list[str]:
    text = function_source(source, f"{name}_reference", f"{name}_vjp").splitlines()
    return [*text, "", "", f"{name} = SimpleNamespace(reference={name}_reference, vjp={name}_vjp)"]


def kernel_part(source: MapSource, name: str) -> list[str]:
    text = kernel_source(source, f"{name}_kernel", f"{name}_vjp_kernel").splitlines()
    scratch_items = [f'"{each}": Port("{port.shape}", "{port.dtype}")' for each, port in scratch(source.layout).items()]
    backward = ['"triton"', f"{name}_vjp_launch", "_map_launches.map_vjp_configs"]
    backward += [f"scratch={Items('{}', tuple(scratch_items))}"] if scratch_items else []
    return [
        *text,
        *["", "", *forward_launch(source, name)],
        *["", "", *backward_launch(source, name)],
        *["", "", f"{name} = SimpleNamespace("],
        f'{INDENT}LAUNCHERS=[Launcher("triton", {name}_launch, _map_launches.map_configs)],',
        *launcher_lines(backward, scratch_items),
        ")",
    ]


def launcher_lines(arguments: list[str], scratch_items: list[str]) -> list[str]:
    line = f"{INDENT}VJP_LAUNCHERS=[Launcher({', '.join(arguments)})],"
    if len(line) <= 120:
        return [line]
    *first, _ = arguments
    inner = [*(f"{each}," for each in first), "scratch={", *(f"{INDENT}{each}," for each in scratch_items), "},"]
    deep = indented(indented(indented(inner)))
    return [f"{INDENT}VJP_LAUNCHERS=[", f"{INDENT * 2}Launcher(", *deep, f"{INDENT * 2})", f"{INDENT}],"]


def forward_launch(source: MapSource, name: str) -> list[str]:
    operands = [*source.layout.has, "y"]
    head = call(f"def {name}_launch(", [*operands, "*", *source.scalars, "seqs", "config"], "):", "")
    shape = [str(source.layout.segments), str(source.layout.fixed_columns)]
    arguments = [f"{name}_kernel", pairs(operands), pairs(source.scalars), "y", *shape, "config"]
    return [*head, *returned("return [", "_map_launches.map_launch(", arguments, "]")]


def backward_launch(source: MapSource, name: str) -> list[str]:
    layout, buffers = source.layout, list(scratch(source.layout))
    gradients = [f"d_{each}" for each in layout.has]
    names = [*source.read_by_vjp, *gradients, *buffers, "*", *source.vjp_scalars, "seqs", "config"]
    direct = [each for each in gradients if each.removeprefix("d_") not in layout.reduced]
    sums = [
        f'"{each}": (d_{each}, [{", ".join(scratch(layout, (each,)))}], {reductions(layout, each)})'
        for each in layout.reduced
    ]
    arguments = [f"{name}_vjp_kernel", pairs([*source.read_by_vjp, *direct]), pairs(source.vjp_scalars), D]
    arguments += [str(layout.segments), str(layout.fixed_columns)]
    arguments += [Items("{}", tuple(sums)), str(by_row(layout)), str(tail(layout))]
    arguments += ["seqs", "config"]
    return [
        *call(f"def {name}_vjp_launch(", names, "):", ""),
        *call("return _map_launches.map_vjp_launches(", arguments, ")", INDENT),
    ]


def pairs(names) -> str:
    return f"dict({', '.join(f'{name}={name}' for name in names)})" if names else "{}"


def returned(head: str, opening: str, arguments: list[str], tail: str) -> list[str]:
    """A call inside of brackets after return."""
    line = f"{INDENT}{head}{opening}{', '.join(arguments)}){tail}"
    if len(line) <= 120:
        return [line]
    return [f"{INDENT}{head}", *call(opening, arguments, ")", INDENT * 2), f"{INDENT}{tail}"]
