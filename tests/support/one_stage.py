"""A pipeline of one stage, made from its contract, and inputs that its units and laws allow."""

import math
from dataclasses import replace

import torch

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete, size
from chunkwise.runner.planning.dtypes import port_dtype
from chunkwise.runner.stage_files.stage_checks import possible_units
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.stages import chunk_scaled_dot_kkt, solve_tril

STAGES = find_stages()
ATTENTION = dict(HQ=4, Sq=19, Sk=17, DV=20, ND=3, PAGES=4, PAGE=8, NP=2, DC=24, DN=16, DR=8)
ATTENTION |= dict(HI=3, KI=20, TOP=6, M=4, NB=16, GO=2, HG=3, DO=20)
"""Sizes of the axes that only attention has; some queries see no key."""
BY_TOKEN = [name for name, stage in STAGES.items() if "T" in stage.axis_names]
"""Those whose tokens can be packed by cu_seqlens."""
KEYS = (("Sk",), ("NP", "PAGE"), ("NB", "M"))
"""What the keys of a stage lie along."""
PARAM = 0.125
"""For a param without a default."""


def optional_inputs(name) -> list[str]:
    """Those without which the other inputs still give every output its size, as they must where the stage is alone."""
    contract = STAGES[name].contract
    optional = [port for port, each in contract.inputs.items() if each.optional]
    wanted = {axis for each in contract.outputs.values() for axis in each.axes if axis.isalpha()} - {"C", "NT"}
    return [port for port in optional if wanted <= axes_without(contract, port)]


def axes_without(contract, port) -> set[str]:
    known = {axis for name, each in contract.inputs.items() if name != port for axis in each.axes}
    return known | ({"N"} if "B" in known else set())


def stage_op(tmp_path, name, absent=(), C=64, backend="reference", folders=()):
    """The op that is one stage, all its outputs the pipeline's, without the inputs that are absent."""
    stage = (STAGES if name in STAGES else find_stages(folders))[name]
    contract = stage.contract
    present = [port for port in contract.inputs if port not in absent]
    fixed = {"C": C} if {"C", "NT"} & set(stage.axis_names) else {}
    fixed |= {"TOP": ATTENTION["TOP"]} if "TOP" in set(stage.axis_names) - axes_without(contract, None) else {}
    edges = ", ".join(f"{port}: {port}" for port in present)
    lines = [
        "schema: pipeline/v1",
        f"name: one_{name}",
        *([f"axes: {{{', '.join(f'{axis}: {size}' for axis, size in fixed.items())}}}"] if fixed else []),
        "inputs:",
        *(f"  {port}: {entry(contract, port, absent)}" for port in present),
        *([f"params: {{{', '.join(f'{each}: {PARAM}' for each in unbound(contract))}}}"] if unbound(contract) else []),
        f"stages: {{stage: {{use: {name}, in: {{{edges}}}{bound(contract)}}}}}",
        f"outputs: {{{', '.join(f'{port}: stage.{port}' for port in contract.outputs)}}}",
    ]
    path = tmp_path / f"one_{name}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return load(path, backend=backend, stages=folders)


def unbound(contract) -> list[str]:
    return [name for name, default in contract.params.items() if default is None]


def bound(contract) -> str:
    return ", with: {" + ", ".join(f"{name}: {name}" for name in unbound(contract)) + "}" if unbound(contract) else ""


def entry(contract, port, absent) -> str:
    each = contract.inputs[port]
    keys = [f"shape: {each.shape}", f"dtype: {each.dtype}"]
    if each.unit:
        keys.append(f"unit: {unit_of(contract, each.unit, absent)}")
    if each.where or (port == "k" and "beta" in contract.inputs):
        # the delta rule does not converge on long keys
        keys.append(f'where: "{each.where or "unit_norm(K)"}"')
    if port in contract.mutated.values():
        keys.append("mutates: true")
    return "{" + ", ".join(keys) + "}"


def unit_of(contract, unit, absent) -> str:
    for variable, (port, given, missing) in contract.presence.items():
        unit = unit.replace("{" + variable + "}", missing if port in absent else given)
    return next(iter(possible_units(unit, contract)))


def stage_inputs(op, io=torch.float32, *, seqlens=None, seed=0, device="cpu", **sizes) -> dict[str, torch.Tensor]:
    """Inputs shaped by unit: chunk sums fall inside a chunk, Gram matrices and inverses are triangular, what rows read
    of a state is small enough for the state not to grow without end."""
    sizes = complete(op.whole, sizes, None if seqlens is None else len(seqlens))
    graph = op.whole
    plain = [name for name, value in graph.inputs.items() if not shaped_by_unit(value)]
    made = make_inputs(narrowed(graph, plain), sizes, io, device, seed)
    generator = torch.Generator(device).manual_seed(seed)
    for name, value in graph.inputs.items():
        if name not in plain:
            shape = [size(axis, sizes) for axis in value.axes]
            if value.unit.startswith(("index/", "count/")):
                made[name] = span(value.unit, sizes, device).expand(shape).contiguous()
                continue
            noise = torch.randn(shape, generator=generator, device=device)
            x = shaped(value, noise, rows_in_chunk(sizes, seqlens, device), sizes)
            made[name] = x.to(port_dtype(value.dtype, io))
        elif value.unit == "lse/ln" and "q" in graph.inputs:
            made[name] = made[name] + 2  # about where the scores' is: their weights are near 1
    inverse = {"k", "beta", "Ai"} <= made.keys()
    if inverse:
        made["beta"] = made["beta"].sigmoid()  # beyond 1 a state grows over a long sequence
    if "map" in graph.outputs and (io == torch.float16 or sizes["NT"] >= MANY):
        made |= near_identity(made, sizes)
    elif io == torch.float16:
        made |= within_fp16(made, graph)
    if inverse:
        made["Ai"] = inverse_of_its_keys(made, seqlens or (sizes["T"],), sizes["C"])
    return {name: made[name] for name in graph.inputs}


MANY = 100
"""Chunks over which a map of random factors decays to nothing or grows."""


def near_identity(made, sizes) -> dict[str, torch.Tensor]:
    """The inputs whose map would leave the dtype's range, or be ill-conditioned."""
    factors = {name: 4 / made[name].abs().max() for name in ("g", "b_end") if name in made} | {"w": 0.5, "beta": 1}
    return {name: made[name] * (factor / sizes["NT"]) for name, factor in factors.items() if name in made}


def within_fp16(made, graph) -> dict[str, torch.Tensor]:
    """The inputs whose results would leave fp16: gradients by weights beyond 1."""
    return {name: x + 8 for name, x in made.items() if graph.inputs[name].unit == "lse/ln" and "q" in made}


def inverse_of_its_keys(made, lengths, C) -> torch.Tensor:
    """Ai of the k, beta and g beside it: with any other a state does not decay as g says. Rows past the end stay."""
    found, start = made["Ai"].clone(), 0
    for length in filter(None, lengths):
        rows = slice(start, start + length)
        k, beta, g = (None if x is None else x[:, rows].float() for x in map(made.get, ("k", "beta", "g")))
        A = chunk_scaled_dot_kkt.reference(k, beta, g, C=C)["A"]
        found[:, rows] = solve_tril.reference(A, C=C)["Ai"].to(found.dtype)
        start += length
    return found


def narrowed(graph, names):
    return replace(graph, inputs={name: graph.inputs[name] for name in names})


def shaped_by_unit(value) -> bool:
    units = (
        "log_decay/log2/chunk_sum", "gram/", "wy/decayed_key", "index/first_key", "index/end_key", "index/own",
        "index/sequence", "index/first_row", "index/chosen_key", "count/chosen",
    )  # fmt: skip
    return (value.unit or "").startswith(units)


def span(unit, sizes, device) -> torch.Tensor:
    """Each query sees the key at its own place and the six before it; where keys are few, the first see none. Query i
    has chosen i % (TOP + 1) keys, every second one from i % 5 on."""
    if unit in ("index/chosen_key", "count/chosen"):
        return chosen(unit, sizes, device)
    keys = next(math.prod(sizes[axis] for axis in axes) for axes in KEYS if set(axes) <= sizes.keys())
    own = torch.arange(sizes["Sq"], dtype=torch.int32, device=device) + keys - sizes["Sq"]
    found = {
        "index/first_key": (own - 6).clamp(0, keys),
        "index/end_key": (own + 1).clamp(0, keys),
        "index/own_key": own,
        "index/sequence": own // 5,
        "index/first_row": own // 5 * 5,
    }
    return found[unit]


def chosen(unit, sizes, device) -> torch.Tensor:
    query, place = (torch.arange(sizes[axis], dtype=torch.int32, device=device) for axis in ("Sq", "TOP"))
    count = query % (sizes["TOP"] + 1)
    places = 2 * place + query[:, None] % 5
    return count if unit == "count/chosen" else torch.where(place < count[:, None], places, -1)


def rows_in_chunk(sizes, seqlens, device) -> torch.Tensor:
    """Each token's row in its chunk; past the last sequence they count on."""
    C, lengths = sizes["C"], seqlens or (sizes["T"],)
    rows = [torch.arange(length) % C for length in (*lengths, sizes["T"] - sum(lengths))]
    return torch.cat(rows).to(device)


def shaped(value, noise, row, sizes):
    if value.unit == "wy/decayed_key":
        return noise / sizes["K"]
    if value.unit.startswith("log_decay"):
        step = torch.nn.functional.logsigmoid(noise)
        sums = torch.empty_like(step)
        for t in range(step.shape[1]):
            sums[:, t] = step[:, t] + (sums[:, t - 1] if t and row[t] else 0)
        return sums
    columns = torch.arange(sizes["C"], device=noise.device)
    below = (columns < row[:, None])[None, :, None, :]
    strict = torch.where(below, 0.2 * noise, 0.0)
    if value.unit.startswith("gram/strict_lower"):
        return strict
    return strict + (columns == row[:, None])[None, :, None, :]
