"""An op's signature and help, made from its pipeline: what ``help(op)`` and ``inspect.signature(op)`` say."""

from inspect import Parameter, Signature, cleandoc

from ..graphs.graph import Graph, Value
from ..loading.spec import InputSpec, PipelineSpec
from ..loading.spec_keys import OWN


class Default:
    """A param's default as the pipeline writes it, ``K ** -0.5``; None given in a call means the same."""

    def __init__(self, text):
        self.text = str(text)

    def __repr__(self) -> str:
        return self.text


def call_signature(graph: Graph, result: type) -> Signature:
    """Inputs, params and what every op takes, all by name. An input's annotation is its type in words."""
    spec = graph.spec
    parameters = [by_name(name, None if entry.optional else Parameter.empty, type_words(graph.inputs[name]))
                  for name, entry in spec.inputs.items()]  # fmt: skip
    parameters += [by_name(name, Default(written.value), "number") for name, written in spec.params.items()]
    parameters.sort(key=lambda each: each.default is not Parameter.empty)
    return Signature([*parameters, *(by_name(name, None) for name in OWN)], return_annotation=result)


def by_name(name: str, default, annotation=Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def call_help(graph: Graph, every_op: str | None) -> str:
    """The op in words. every_op: the docstring of what all ops take and do; None under python -OO."""
    spec = graph.spec
    words = {name: (type_words(graph.inputs[name]), note(entry)) for name, entry in spec.inputs.items()}
    rows = [(name, "; ".join(filter(None, each))) for name, each in words.items()]
    rows += [(name, f"a number, {written.value} when not given") for name, written in spec.params.items()]
    outputs = [(name, type_words(graph.values[value])) for name, value in graph.outputs.items() if value]
    return "\n".join([heading(spec), "", *columns(rows), "", "Gives", *columns(outputs), "", cleandoc(every_op or "")])


def heading(spec: PipelineSpec) -> str:
    source = f" ({spec.source})" if spec.source else ""
    return f"{spec.name}: {spec.summary}{source}" if spec.summary else f"{spec.name}{source}"


def columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"    {name:<{width}}  {words}" for name, words in rows]


def type_words(value: Value) -> str:
    """``[B T HV], f32, log_decay/ln/token, <= 0``"""
    laws = (law.text for law in value.laws)
    return ", ".join([f"[{' '.join(map(str, value.axes))}]", value.dtype, *filter(None, [value.unit]), *laws])


def note(entry: InputSpec) -> str:
    """What a file says of an input beside its type."""
    default = f"optional, {entry.default.value} when absent" if entry.default else "optional"
    rows = f"rows by {entry.slots.value}" if entry.slots else ""
    written = "written in place" if entry.mutates else ""
    return "; ".join(filter(None, (default if entry.optional else "", written, rows, entry.doc)))
