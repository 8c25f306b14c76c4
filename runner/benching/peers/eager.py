"""The pipeline's own references as one plain PyTorch program, differentiated by autograd: what there is without us."""

from collections.abc import Mapping

import torch

from ...graphs.sizes import local_sizes, node_parameters
from ...planning.dtypes import compute_dtype
from ...planning.references import rounded, run_reference
from ..case import Case, InputSet
from . import Peer


def peer(case: Case) -> Peer:
    return Peer(f"eager torch {torch.__version__}", "the stages' references", run_references)


def run_references(given: InputSet) -> Mapping[str, torch.Tensor | None]:
    """Every node of the chunked graph in its order, each value in its port's dtype."""
    call, values = given.call, dict(given.inputs)
    for node in call.graph.nodes.values():
        inputs = {port: values.get(name) if name else None for port, name in node.inputs.items()}
        keywords = {**local_sizes(node, call.sizes), **node_parameters(node, call.sizes, call.params)}
        found = run_reference(node, inputs, keywords, call.seqs, compute_dtype(call.io))
        made = rounded(node, found, call.io, set(node.outputs))
        values |= {name: made[port] for port, name in node.outputs.items()}
    return {name: values[value] for name, value in call.wanted.items()}
