"""The stages with a decay per channel on small inputs: gradients against autograd, ops cut in two."""

import inspect

import torch
from support.ops import close, same_bits

SIZES = {"B": 2, "H": 2, "HV": 4, "K": 5, "V": 7}


def stage_values(stage, T, C, absent=(), decay=3.0) -> dict:
    """Every input of the stage in float64; those in ``absent`` are None."""
    sizes = {**SIZES, "T": T, "N": 2, "NT": -(-T // C), "C": C}
    generator = torch.Generator().manual_seed(T)

    def make(name, port):
        x = torch.randn([sizes[axis] for axis in port.axes], generator=generator, dtype=torch.float64)
        if name == "b":
            return torch.cat([part.cumsum(1) for part in (-decay * x.abs()).split(C, dim=1)], dim=1)
        return -x.abs() if name in ("b_end", "x") else 0.3 * x if name in ("w", "Ai") else x

    return {name: None if name in absent else make(name, port) for name, port in stage.CONTRACT.inputs.items()}


def check_vjp(stage, T, C, only=None, absent=(), **keywords) -> None:
    """The stage's vjp equals autograd through its reference; only: the one output that has a cotangent."""
    named = {name: x for name, x in {"C": C, **keywords}.items() if name in inspect.signature(stage.vjp).parameters}
    inputs = stage_values(stage, T, C, absent)
    wanted = [name for name, x in inputs.items() if x is not None]
    for name in wanted:
        inputs[name].requires_grad_()
    outputs = stage.reference(**inputs, **named)
    kept = [only] if only else list(outputs)
    cotangents = {f"d_{name}": torch.randn_like(x) if name in kept else None for name, x in outputs.items()}
    loss = sum((outputs[name] * cotangents[f"d_{name}"]).sum() for name in kept)
    loss = loss + sum(0 * inputs[name].sum() for name in wanted)
    expected = torch.autograd.grad(loss, [inputs[name] for name in wanted])
    known = {**inputs, **outputs, **cotangents}
    taken = {name: known[name] for name in inspect.signature(stage.vjp).parameters if name in known}
    with torch.no_grad():
        found = stage.vjp(**taken, needs=frozenset(wanted), **named)
    assert found.keys() == set(wanted)
    for name, gradient in zip(wanted, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-10, msg=name)


def cut(an_op, given: dict, start: int, stop: int) -> dict:
    """The inputs of tokens start to stop."""
    tokens = {name for name, value in an_op.whole.inputs.items() if "T" in value.axes}
    return {n: x[:, start:stop].contiguous() if n in tokens and x is not None else x for n, x in given.items()}


def check_split(an_op, given: dict, at: int) -> None:
    """S12: the state after a part starts the rest."""
    T, whole = given["v"].shape[1], an_op(**given)
    first = an_op(**cut(an_op, given, 0, at))
    rest = an_op(**{**cut(an_op, given, at, T), "initial_state": first.final_state})
    o = torch.cat([first.o, rest.o], dim=1)
    if o.dtype == torch.float64:
        torch.testing.assert_close((o, rest.final_state), (whole.o, whole.final_state), rtol=1e-12, atol=1e-12)
    else:
        close(an_op, given, o, whole, "o")
        close(an_op, given, rest.final_state, whole, "final_state")


def token_gradients(an_op, given: dict, weights: torch.Tensor) -> tuple:
    """(outputs, gradients of sum o * weights by the inputs that have tokens)."""
    tracked = {n: None if x is None else x.clone().requires_grad_() for n, x in given.items()}
    out = an_op(**tracked)
    (out.o.float() * weights).sum().backward()
    tokens = [name for name, value in an_op.whole.inputs.items() if "T" in value.axes]
    return out.o.detach(), {name: tracked[name].grad for name in tokens}


def check_causality(an_op, given: dict, name: str, t: int, value: float) -> None:
    """N10: with another value at token t, or a token more, tokens before t keep the bits of outputs and gradients."""
    o, gradients = token_gradients(an_op, given, before(given, t))
    changed = {**given, name: given[name].clone()}
    changed[name][:, t] = value
    longer = {n: torch.cat([x, x[:, :1]], dim=1) if n in gradients else x for n, x in given.items()}
    for other in (changed, longer):
        o_other, gradients_other = token_gradients(an_op, other, before(other, t))
        assert same_bits(o[:, :t], o_other[:, :t])
        for each, gradient in gradients.items():
            assert gradient[:, :t].any(), each
            assert same_bits(gradient[:, :t] + 0.0, gradients_other[each][:, :t] + 0.0), each


def before(given: dict, t: int) -> torch.Tensor:
    """Weights of a loss on the tokens before t alone."""
    v = given["v"]
    weights = torch.randn(v.shape, generator=torch.Generator().manual_seed(1)).to(v.device)
    rows = torch.arange(v.shape[1], device=v.device)[None, :, None, None]
    return torch.where(rows < t, weights[:, :1].expand_as(weights) * (1 + 0.1 * rows), 0.0)
