"""A pipeline as one plain Python file that runs without the runner.

The stages stand in the order of the joint graph: forward, then what is rebuilt and the gradients, in one
``autograd.Function``. The file imports the stages that it uses and carries the few helpers of export_parts.py.
"""

import ast
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..calling.function import Op
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..expression import names_in, parse_expression
from ..graphs.graph import Value
from ..loading.pipelines import FOLDER
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import SHIPPED_PACKAGE
from .export_form import Form, make_form
from .export_maps import map_imports, map_lines, map_sources
from .export_passes import backward, forward, names_of, read_axes
from .python_text import INDENT, Names, call, docstring, expression, import_from

BACKENDS = ("triton", "reference")
PARTS = Path(__file__).with_name("export_parts.py")
OWN_NAMES = {
    "run", "ctx", "known", "seqlens", "inspect", "math", "torch", "partial", "once_differentiable", "Run", "Seqs",
    "INPUTS", "OPTIONAL", "each", "ValueError", "dict", "len", "min", "max", "abs", "set", "SimpleNamespace", "_maps",
    "tl", "triton", "Launcher", "Port", "_map_launches",
}  # fmt: skip

ROOT = SHIPPED_PACKAGE.rpartition(".")[0]
MAP_TAILS = ("", "_reference", "_vjp", "_kernel", "_vjp_kernel", "_launch", "_vjp_launch")


def export(op: Op, backend: str = "triton", outputs: Sequence[str] | None = None, without: Collection[str] = ()) -> str:
    """The text of the file.

    backend: triton (a stage that has no kernel stays a reference) or reference. outputs: those that the function
    returns, all by default. without: optional inputs that the function does not have.
    Raises ChunkwiseError for names that the op does not have, and for stages that the file could not import.
    """
    if op.whole.mutated:
        raise ChunkwiseError(not_exported(op))
    form = make_form(op, backend, outputs, frozenset(without))
    stems = {name for _, name in form.modules.values()}
    taken = {f"{name}{tail}" for name in form.maps.values() for tail in MAP_TAILS}
    names = Names({*OWN_NAMES, *stems, *taken, *form.joint.axis_names, *form.spec.axes, *form.spec.params})
    function = names("the function", form.spec.name)
    words = re.split("_+", form.spec.name)
    cls = names("the class", "".join(word[:1].upper() + word[1:] for word in words))
    for name in form.inputs:
        names(name, name)
    code = [*public(form, names, function, cls), "", "", f"class {cls}(torch.autograd.Function):"]
    code += [*forward(form, names), "", *backward(form, names)]
    code += ["", "", *helpers("\n".join(code))]
    maps = map_lines(map_sources(form.joint), form.maps, form.backend == "triton")
    needed = imports(form, "\n".join([*maps, *code]))
    top = [*head(form, names, function), *needed, *constants(form, names), "", "", *maps]
    return "\n".join([*top, *code, ""])


def not_exported(op: Op) -> Diagnostic:
    over = next(iter(op.whole.mutated.values()))
    message = f"{op.spec.name} writes over {over}, and an exported file writes over none of its inputs"
    help = f"call it through load({op.spec.name!r}), or export the pipeline of the chunked form"
    return Diagnostic(codes.USAGE, message, op.whole.inputs[over].mark, help=help)


def signature(form: Form, names: Names) -> list[str]:
    inputs = [names(name, name) + ("=None" if name in form.optional else "") for name in form.inputs]
    keywords = [f"{name}=None" for name in form.spec.params] + (["seqlens=None"] if form.packed else [])
    return [*inputs, *(["*", *keywords] if keywords else [])]


def head(form: Form, names: Names, function: str) -> list[str]:
    """What the file is, how it is called, what it has not."""
    fixed = [name for name in form.inputs if name not in form.joint.gradients]
    lacks = [] if form.packed else ["packed sequences (cu_seqlens)"]
    lacks += [f"gradients of {', '.join(fixed)}"] if fixed else []
    lacks += [f"the optional input {name}" for name in sorted(form.joint.absent)]
    where, needs = "as PyTorch references, on any device", "chunkwise's stages"
    if form.any_kernel:
        where = "on Triton's kernels: on a GPU, or in float32 on the CPU where TRITON_INTERPRET is set to 1"
        needs = "chunkwise's stages and kernels"
    return docstring(
        [
            f"{form.spec.name}: {form.spec.summary.rstrip('.')}. {form.spec.source}",
            *call(f"{', '.join(form.outputs)} = {function}(", signature(form, names), ")", INDENT),
            f"Written by `chunkwise export {named(form.spec)} --backend {form.backend}`. It needs {needs}, not the "
            f"runner. Stages run {where}. A gradient that does not come in counts as zeros.",
            f"Not in this file: {', '.join([*lacks, 'gradients of gradients'])}.",
        ],
        "",
    )


def named(spec: PipelineSpec) -> str:
    """What a command calls the pipeline: by its name where it ships, by its file elsewhere."""
    file = Path(spec.file)
    return spec.name if file.parent.absolute() == FOLDER and file.stem == spec.name else shlex.quote(spec.file)


def imports(form: Form, code: str) -> list[str]:
    standard = [f"import {name}" for name in ("inspect", "math") if f"{name}." in code]
    standard += ["from functools import partial"] if "partial(" in code else []
    for_maps, own = map_imports(code) if form.maps else ([], {})
    standard += for_maps
    lines = ["", *standard, *([""] if standard else []), "import torch"]
    lines += ["import triton", "import triton.language as tl"] if "@triton.jit" in code else []
    lines += ["from torch.autograd.function import once_differentiable", ""]
    modules = {f"{ROOT}.{module}": list(found) for module, found in own.items()}
    for package, name in form.modules.values():
        modules.setdefault(package, []).append(name)
    if "Seqs(" in code:
        modules[f"{SHIPPED_PACKAGE}._seqs"] = ["Seqs"]
    for package in sorted(modules):
        lines += import_from(package, modules[package])
    return [*lines, ""]


def constants(form: Form, names: Names) -> list[str]:
    lines = [f"{name} = {written.value}" for name, written in form.spec.axes.items()]
    lines.append("INPUTS = {")
    for name in form.inputs:
        value = form.joint.inputs[name]
        lines.append(f'{INDENT}"{names(name, name)}": ("{axes_of(value)}", "{value.dtype}"),')
    optional = ", ".join(f'"{names(name, name)}"' for name in form.inputs if name in form.optional)
    return [*lines, "}", f"OPTIONAL = {{{optional}}}" if optional else "OPTIONAL = set()"]


def axes_of(value: Value) -> str:
    return " ".join(map(str, value.axes))


def public(form: Form, names: Names, function: str, cls: str) -> list[str]:
    """The function that people call: checks, defaults, then the autograd function."""
    inputs = [names(name, name) for name in form.inputs]
    fixed = [f'"{name}": {name}' for name in form.spec.axes]
    lines = [*call(f"def {function}(", signature(form, names), "):", ""), *docstring(explained(form, inputs), INDENT)]
    lines.append(f"{INDENT}known = {{{', '.join(fixed)}}}")
    if form.packed:
        lines += [f"{INDENT}if seqlens is not None:", f'{INDENT * 2}known["N"] = len(seqlens)']
    lines += call("run = Run(", [f"dict({', '.join(f'{name}={name}' for name in inputs)})", "known"], ")", INDENT)
    if form.packed:
        lines += [f"{INDENT}if seqlens is None:", f"{INDENT * 2}run.rows()"]
        lines += [f"{INDENT}else:", f"{INDENT * 2}run.pack(seqlens)"]
    else:
        lines.append(f"{INDENT}run.{'rows' if form.any_kernel else 'cut'}()")
    lines += [*([f"{INDENT}run.need_kernels()"] if form.any_kernel else []), *checked(form)]
    return [*lines, *call(f"return {cls}.apply(", ["run", *inputs, *form.spec.params], ")", INDENT)]


def explained(form: Form, inputs: list[str]) -> list[str]:
    lines = [f"{form.spec.summary.rstrip('.')}."]
    dtypes = {"io": "", "f32": "float32 (float64 with float64)", "int": "int32 or int64", "q8": "int8 or fp8 (e4m3)"}
    for name, spoken in zip(form.inputs, inputs):
        value = form.joint.inputs[name]
        words = [axes_of(value), dtypes[value.dtype], value.unit, *(law.text for law in value.laws)]
        words += ["or None"] if name in form.optional else []
        lines.append(f"    {spoken}: {', '.join(filter(None, words))}")
    lines += [f"    {name}: {written.value} by default" for name, written in form.spec.params.items()]
    lines += ["    seqlens: lengths of packed sequences, on the host (B = 1)"] if form.packed else []
    outputs = [f"{name} [{axes_of(form.joint.values[value])}]" for name, value in form.outputs.items()]
    return [*lines, f"Returns {', '.join(outputs)}. Raises ValueError for tensors and sizes that do not fit."]


def checked(form: Form) -> list[str]:
    """Constraints and the defaults of params, on the sizes of the call."""
    conditions, of_params = {}, {}
    for written in form.spec.constraints:
        conditions[expression(written.value, {})] = names_of(written.value)
    for node in form.joint.nodes.values():
        axes = {axis: str(term) for axis, term in node.axes.items()}
        for text in node.stage.contract.requires:
            names = names_in(parse_expression(text))
            if names.isdisjoint(node.params):
                used = {axes.get(name, name) for name in names}
                conditions[expression(text, axes)] = {name for name in used if not name.isdigit()}
            elif read := set().union(*(names_of(node.params[name]) for name in names & node.params.keys())):
                given = {name: in_brackets(value) for name, value in node.params.items()}
                of_params[expression(text, axes | given)] = read | {axes[name] for name in names & axes.keys()}
    lines = unless(conditions)
    for name, written in form.spec.params.items():
        lines += [f"{INDENT}if {name} is None:", f"{INDENT * 2}{name} = {expression(written.value, {})}"]
    used = {name for each in (*conditions.values(), *of_params.values()) for name in each}
    used |= {name for written in form.spec.params.values() for name in names_of(written.value)}
    return [*read_axes(form, used, INDENT), *lines, *unless(of_params)]


def unless(conditions: Mapping[str, Collection[str]]) -> list[str]:
    """Lines that refuse what breaks a condition. conditions: each with the names in it."""
    lines = []
    for condition, used in conditions.items():
        figures = ", ".join(f"{name} = {{{name}}}" for name in sorted(used))
        message = f'f"{condition} does not hold for {figures}"' if used else f'"{condition} does not hold"'
        lines += [f"{INDENT}if not {condition}:", f"{INDENT * 2}raise ValueError({message})"]
    return lines


def in_brackets(value: str | float) -> str:
    """What a stage's param is bound to, as a part of an expression."""
    text = expression(value, {})
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def helpers(code: str) -> list[str]:
    """Run with the methods that the code needs, as export_parts.py has them."""
    text = PARTS.read_text(encoding="utf-8")
    cls = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
    source = {name: text.splitlines()[node.lineno - 1 : node.end_lineno] for name, node in methods.items()}
    used, todo = {"__init__"}, ["__init__"] + [name for name in methods if f"run.{name}(" in code]
    while todo:
        used.add(name := todo.pop())
        todo += [each for each in methods if each not in used and f"self.{each}(" in "\n".join(source[name])]
    lines = [f"class {cls.name}:", f'{INDENT}"""{ast.get_docstring(cls)}"""']
    for name in methods:
        lines += ["", *source[name]] if name in used else []
    return lines
