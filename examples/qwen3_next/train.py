"""Train a small random Qwen3-Next with our gated delta rule in place of transformers' PyTorch function.

Same weights, same text, same optimiser: the losses of both stand side by side, and so do the gradients of the first
step. Both are held against the same model in float64, whose rule is the pipeline's definition, token by token; ours may
be off by twice what transformers' own float32 path is off by (rms of runs whose weights are moved by up to half a unit
in the last place), as everywhere in chunkwise. Exits 1 where it is off by more. Needs torch, transformers and
safetensors beside chunkwise:

    python train.py [--steps 6] [--device cuda]
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import contextmanager, nullcontext

import torch
from capture import RULE, build_model, modeling, text_tokens
from torch.overrides import TorchFunctionMode

from chunkwise.runner import chunk_gated_delta_rule, load
from chunkwise.runner.script import device_option, told, whole
from chunkwise.runner.verification.budgets import Verdict, arithmetic_noise, judge
from chunkwise.runner.verification.oracle import definition_outputs
from chunkwise.runner.verification.rounding import Stochastic
from chunkwise.stages._seqs import Seqs

DRAWS = 8
LEARNING_RATE = 0.05
GATE_SPAN = 13.4  # nats by which a chunk of this text decays, at most


def ours(query, key, value, **named):
    """The drop-in; transformers passes every keyword of its layers on, and drops what a function does not name."""
    known = ("g", "beta", "initial_state", "output_final_state", "use_qk_l2norm_in_kernel", "cu_seqlens")
    return chunk_gated_delta_rule(query, key, value, **{name: named[name] for name in known if name in named})


def by_definition(query, key, value, *, g, beta, **named):
    """The rule token by token in the dtype of its inputs, as gated_delta_l2norm.yaml defines it."""
    op = load("gated_delta_l2norm")
    call = op.bind(dict(q=query, k=key, v=value, g=g, beta=beta))
    return definition_outputs(call.graph, call.tensors, call.params, call.sizes, None)["o"], None


class Float64(TorchFunctionMode):
    """What transformers computes in float32 whatever the model's dtype is computed in float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        wide = {torch.float32: torch.float64}
        args = tuple(wide.get(x, x) if isinstance(x, torch.dtype) else x for x in args)
        kwargs = {name: wide.get(x, x) if isinstance(x, torch.dtype) else x for name, x in (kwargs or {}).items()}
        return func(*args, **kwargs) if func is not torch.Tensor.float else args[0].double()


@contextmanager
def rule(function: Callable | None):
    """transformers' model with another gated delta rule; None leaves its own."""
    own = getattr(modeling, RULE)
    setattr(modeling, RULE, function or own)
    try:
        yield
    finally:
        setattr(modeling, RULE, own)


def loss_of(model, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next byte; the embedding serves as the output layer too."""
    hidden = model(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
    logits = hidden @ model.embed_tokens.weight.T
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), tokens[:, 1:].flatten())


def train(function: Callable | None, steps: int, device, dtype=torch.float32, nudge: Stochastic | None = None):
    """(losses [steps] before each step, gradients of the first step by parameter name)."""
    model = build_model().to(device, dtype).train()
    tokens = text_tokens().to(device)
    if nudge is not None:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.double() + nudge.slips(p.double(), torch.float32))
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    losses, first = [], {}
    with rule(function), Float64() if dtype == torch.float64 else nullcontext():
        for step in range(steps):
            optimiser.zero_grad()
            loss = loss_of(model, tokens)
            loss.backward()
            if step == 0:
                first = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            losses.append(loss.detach())
            optimiser.step()
    return torch.stack(losses), first


def verdict(got: torch.Tensor, truth: torch.Tensor, models: list[torch.Tensor]) -> Verdict:
    """Rule 1 of the budgets, on the tensor as a whole: axes without a meaning for the op make one slice.

    The noise widens nothing but the cap on how badly conditioned a case may be.
    """
    noise = arithmetic_noise(torch.float32, dict(K=24, V=20, C=64), GATE_SPAN)
    return judge(got, truth, models, ("D",) * got.dim(), Seqs(1, 1, 1, 1), torch.float32, noise)


def compare(steps: int, device) -> bool:
    """Print both sides; True where ours is within budget and both losses fall."""
    truth = train(by_definition, steps, device, torch.float64)
    theirs, mine = train(None, steps, device), train(ours, steps, device)
    draws = [train(None, steps, device, nudge=Stochastic(seed)) for seed in range(DRAWS)]
    print("step   transformers      chunkwise   difference")
    for step, (a, b) in enumerate(zip(theirs[0].tolist(), mine[0].tolist())):
        print(f"{step:4} {a:14.9f} {b:14.9f} {b - a:12.1e}")
    checked = {"loss": verdict(mine[0], truth[0], [draw[0] for draw in draws])}
    for name, d in mine[1].items():
        checked[f"d {name}"] = verdict(d, truth[1][name], [draw[1][name] for draw in draws])
    width = max(map(len, checked))
    print(f"\n{'against float64, relative':{width}}      off by       budget")
    for name, found in checked.items():
        print(f"{name:{width}} {found.rel_l2_err:11.1e} {found.budget:12.1e} {found.why}".rstrip())
    falls = all(bool((losses.diff() < 0).all()) for losses in (theirs[0], mine[0]))
    ok = falls and all(found.ok for found in checked.values())
    print("\nthe same, within budget" if ok else "\nNOT the same" if falls else "\nthe loss does not fall")
    return ok


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=whole, default=6)
    device_option(parser, "cpu")
    options = parser.parse_args(argv)
    return 0 if compare(options.steps, options.device) else 1


if __name__ == "__main__":
    sys.exit(main())
