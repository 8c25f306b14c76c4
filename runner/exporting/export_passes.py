"""The ``autograd.Function`` of an exported file: forward, and backward with what it rebuilds, a stage at a time."""

import re
from collections.abc import Collection, Iterable, Mapping

from ..expression import names_in, parse_expression
from ..graphs.graph import Graph, Node, Value
from ..planning.plan import needed_values
from .export_form import Form
from .export_maps import entry_of
from .python_text import INDENT, WIDTH, Items, Names, call, comment, expression, names_list

BODY, INNER = INDENT * 2, INDENT * 3


class Scope:
    """One function of the file. spoken: value -> variable; axes: those that it has read."""

    def __init__(self, form: Form, names: Names):
        self.form, self.names = form, Names(names.taken)
        self.names.known.update(names.known)
        self.axes: set[str] = set()

    def __call__(self, value: str | None) -> str:
        return "None" if value is None else self.names(value, wish(value))

    def read_axes(self, indent: str) -> list[str]:
        return read_axes(self.form, self.axes, indent)


def wish(value: str) -> str:
    """wy.w and its rebuilt copy are wy_w, wy.vjp.d_k is wy_d_k, and the sum d(k).y is d_k."""
    value = value.removesuffix(".y") if value.startswith("d(") else value
    return re.sub(r"\W+", "_", value.replace(".rebuild.", ".").replace(".vjp.", ".")).strip("_")


def read_axes(form: Form, used: Collection[str], indent: str) -> list[str]:
    """A line that gives axes their sizes; those that the pipeline fixes are constants of the file."""
    known = dict.fromkeys([*form.joint.axis_names, "B", "N", "NT"])
    names = [name for name in known if name in used and name not in form.spec.axes]
    left = ", ".join(names) if len(names) > 1 else f"({''.join(names)},)"
    return [f'{indent}{left} = run.axes("{" ".join(names)}")'] if names else []


def forward(form: Form, names: Names) -> list[str]:
    scope, results = Scope(form, names), list(form.outputs.values())
    inputs = [scope(name) for name in form.inputs]
    nodes = needed_nodes(form.joint, {*results, *form.joint.kept}, set())
    body = stages(scope, nodes, {*results, *form.joint.kept}, {})
    lines = [f"{INDENT}@staticmethod"]
    lines += call("def forward(", ["ctx", "run", *inputs, *form.spec.params], "):", INDENT)
    lines += contiguous([scope(name) for name in form.inputs if name not in form.optional])
    for name in map(scope, sorted(form.optional)):
        lines += [f"{BODY}if {name} is not None:", f"{INNER}{name} = {name}.contiguous()"]
    lines += [*scope.read_axes(BODY), f"{BODY}with {context(form, nodes, inputs[0])}:", *body]
    lines += [f"{BODY}ctx.{name} = {name}" for name in ("run", *read_params(form))]
    lines += call("ctx.save_for_backward(", [scope(name) for name in kept(form.joint)], ")", BODY)
    integers = [scope(name) for name in results if form.joint.values[name].dtype == "int"]
    lines += call("ctx.mark_non_differentiable(", integers, ")", BODY) if integers else []
    lines += cleared(scope, results)
    return [*lines, *names_list("return ", [scope(name) for name in results], "", BODY)]


def backward(form: Form, names: Names) -> list[str]:
    scope, gradients = Scope(form, names), form.joint.gradients
    cotangents = [scope(f"d({name})") for name in form.outputs]
    saved = [scope(name) for name in kept(form.joint)]
    given = {*form.joint.kept, *form.joint.cotangents.values()}
    nodes = needed_nodes(form.joint, set(gradients.values()), given)
    open_ones = {n: at for at, n in enumerate(form.inputs, 1) if n in form.optional and n in gradients}
    asked = {gradients[name]: f"ctx.needs_input_grad[{at}]" for name, at in open_ones.items()}
    body = stages(scope, nodes, set(gradients.values()), asked)
    lines = [f"{INDENT}@staticmethod", f"{INDENT}@once_differentiable"]
    lines += call("def backward(", ["ctx", *cotangents], "):", INDENT)
    lines += [f"{BODY}{name} = ctx.{name}" for name in ("run", *read_params(form))]
    lines += assigned(saved, "ctx.saved_tensors")
    flowing = [name for name in form.outputs if name in form.joint.cotangents]
    lines += contiguous([scope(f"d({name})") for name in flowing])
    lines += [*widened(scope), *scope.read_axes(BODY), f"{BODY}with {context(form, nodes, cotangents[0])}:", *body]
    lines += cleared(scope, gradients.values())
    returned = [scope(gradients.get(name)) for name in form.inputs]
    return [*lines, *names_list("return ", ["None", *returned, *("None" for _ in form.spec.params)], "", BODY)]


def assigned(names: list[str], value: str) -> list[str]:
    return [f"{BODY}({names[0]},) = {value}"] if len(names) == 1 else names_list("", names, f" = {value}", BODY)


def contiguous(names: list[str]) -> list[str]:
    together = f"{BODY}{', '.join(names)} = (each.contiguous() for each in ({', '.join(names)}))"
    if len(names) > 1 and len(together) <= WIDTH:
        return [together]
    return [f"{BODY}{name} = {name}.contiguous()" for name in names]


def widened(scope: Scope) -> list[str]:
    """Cotangents that the graph takes in float32, and autograd brings in the output's dtype."""
    joint = scope.form.joint
    wide = [d for n, d in joint.cotangents.items() if joint.values[d].dtype != joint.values[joint.outputs[n]].dtype]
    return [f"{BODY}{scope(d)} = {scope(d)}.to({dtype(joint.values[d])})" for d in wide]


def cleared(scope: Scope, values: Iterable[str]) -> list[str]:
    by_token = [scope(name) for name in dict.fromkeys(values) if "T" in scope.form.joint.values[name].axes]
    return call("run.clear(", by_token, ")", BODY) if scope.form.packed and by_token else []


def context(form: Form, nodes: list[Node], tensor: str) -> str:
    """Kernels want their device to be the current one; references want no autocast."""
    parts = [f"torch.cuda.device_of({tensor})"] if any(map(form.launched, nodes)) else []
    if not all(map(form.launched, nodes)) or not nodes:
        parts.append("torch.autocast(run.device.type, enabled=False)")
    return ", ".join(parts)


def needed_nodes(joint: Graph, wanted: set[str], given: set[str]) -> list[Node]:
    needed = needed_values(joint, wanted, given) - given
    return [node for node in joint.nodes.values() if needed & set(node.outputs.values())]


def kept(joint: Graph) -> list[str]:
    """What forward saves: inputs that backward reads, and the values that it keeps."""
    read = {name for node in joint.nodes.values() if node.phase != "forward" for name in node.inputs.values()}
    return [*(name for name in joint.inputs if name in read), *joint.kept]


def read_params(form: Form) -> list[str]:
    """Params that backward needs."""
    nodes = [node for node in form.joint.nodes.values() if node.phase != "forward"]
    read = {name for node in nodes for value in node.params.values() for name in names_of(value)}
    return [name for name in form.spec.params if name in read]


def names_of(value: str | int | float) -> frozenset[str]:
    return names_in(parse_expression(value)) if isinstance(value, str) else frozenset()


def stages(scope: Scope, nodes: list[Node], results: set[str], asked: Mapping[str, str]) -> list[str]:
    """The lines of these nodes in order. asked: value -> the condition under which anyone wants it."""
    needed = {name for node in nodes for name in node.inputs.values()} | results
    last = {name: node.id for node in nodes for name in node.inputs.values() if name}
    made = {name for node in nodes for name in node.outputs.values()} - results
    lines, phase = [], "forward"
    for node in nodes:
        if node.phase == "rebuild" != phase:
            lines += comment("rebuilt: forward did not keep these", INNER)
        phase = node.phase
        write = launch if scope.form.launched(node) else evaluate
        lines += write(scope, node, {port: name for port, name in node.outputs.items() if name in needed}, asked)
        done = [scope(name) for name in dict.fromkeys(node.inputs.values()) if name in made and last[name] == node.id]
        if done and node is not nodes[-1]:
            lines += names_list("del ", done, "", INNER)
    return lines or [f"{INNER}pass"]


def title(node: Node) -> str:
    return f"{node.id.removesuffix('.rebuild')}: {node.stage.name}"


def launch(scope: Scope, node: Node, outputs: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """Buffers for the outputs, then the stage's kernels."""
    lines = comment(title(node), INNER)
    for port in node.stage.contract.outputs:
        if port in outputs:
            value = scope.form.joint.values[outputs[port]]
            scope.axes |= {axis for axis in value.axes if isinstance(axis, str)}
            made = f"{scope(value.name)} = run.empty({', '.join([dtype(value), *map(str, value.axes)])})"
            made += f" if {asked[value.name]} else None" if value.name in asked else ""
            lines += noted(f"{INNER}{made}", value.unit)
    module, vjp = module_name(scope, node), "VJP_" if node.stage.is_vjp else ""
    inputs = Items("[]", tuple(scope(name) for name in node.inputs.values()))
    buffers = Items("[]", tuple(scope(outputs.get(port)) for port in node.stage.contract.outputs))
    renamed = [f"{axis}={term}" for axis, term in node.axes.items() if axis != term]
    scope.axes |= {term for axis, term in node.axes.items() if axis != term and isinstance(term, str)}
    arguments = [f"{module}.{vjp}LAUNCHERS", inputs, buffers, *renamed, *params(scope, node)]
    return [*lines, *call("run.launch(", arguments, ")", INNER)]


def noted(line: str, note: str | None) -> list[str]:
    """A line with a note at its end, or above it where there is no room."""
    if not note:
        return [line]
    joined = f"{line}  # {note}"
    return [joined] if len(joined) <= WIDTH else [*comment(note, INNER), line]


def evaluate(scope: Scope, node: Node, outputs: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """The stage's reference or vjp."""
    values = {port: scope.form.joint.values[name] for port, name in outputs.items()}
    types = [f"{port} [{' '.join(map(str, v.axes))}]{' ' + v.unit if v.unit else ''}" for port, v in values.items()]
    lines = comment(f"{title(node)} -> {', '.join(types)}", INNER)
    short = {port.removeprefix("d_") if node.stage.is_vjp else port: value for port, value in values.items()}
    wanted = Items("{}", tuple(f'"{port}": {wanted_dtype(value, asked)}' for port, value in short.items()))
    method, function, named = source(scope, node)
    axes = [name for name in node.stage.reference_keywords if name in node.axes]
    scope.axes |= {node.axes[name] for name in axes if isinstance(node.axes[name], str)}
    arguments = [function, wanted, *named, *(f"{name}={node.axes[name]}" for name in axes), *params(scope, node)]
    left = ", ".join(scope(value.name) for value in values.values())
    return [*lines, *call(f"{left} = run.{method}(", arguments, ")", INNER)]


def source(scope: Scope, node: Node) -> tuple[str, str, list[str | Items]]:
    """(method of Run, the stage's function, its tensors by name): reference, vjp, or autograd through the reference."""
    module, named = module_name(scope, node), {port: scope(name) for port, name in node.inputs.items()}
    if not node.stage.is_vjp:
        return "evaluate", f"{module}.reference", keywords(named)
    stage = node.stage.reference.stage
    if stage.vjp:
        return "gradient", f"{module}.vjp", keywords(named)
    cotangents = {port: x for port, x in named.items() if port.removeprefix("d_") in stage.contract.outputs}
    flowing = tuple(f'"{port.removeprefix("d_")}": {x}' for port, x in cotangents.items() if x != "None")
    rest = {port: x for port, x in named.items() if port not in cotangents}
    return "differentiate", f"{module}.reference", [Items("{}", flowing), *keywords(rest)]


def keywords(named: Mapping[str, str]) -> list[str]:
    return [f"{name}={x}" for name, x in named.items()]


def wanted_dtype(value: Value, asked: Mapping[str, str]) -> str:
    return f"{dtype(value)} if {asked[value.name]} else None" if value.name in asked else dtype(value)


def dtype(value: Value) -> str:
    return {"io": "run.io", "f32": "run.f32", "int": "torch.int32"}[value.dtype]


def module_name(scope: Scope, node: Node) -> str:
    """What the stage's functions and launchers stand under in the file."""
    return scope.form.maps.get(entry_of(node)) or scope.form.modules[node.stage.file][1]


def params(scope: Scope, node: Node) -> list[str]:
    scope.axes |= {name for value in node.params.values() for name in names_of(value)}
    return [f"{name}={expression(value, {})}" for name, value in node.params.items()]
