"""Capture what enters and leaves the gated delta rule of a small random Qwen3-Next layer.

Runs transformers' own PyTorch path (CPU, float32) on the bytes of a real text and writes gdn_layer.safetensors.
README.md beside this file lists the keys. Needs torch, transformers and safetensors, in a venv of their own:

    python capture.py [--out FILE]
"""

import argparse
import importlib.util
import json
import math
import os
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors.torch import save_file
    from torch.nn.functional import softplus
    from transformers import Qwen3NextConfig, Qwen3NextModel
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling
except ImportError as error:
    raise SystemExit(f"{error}; README.md beside this file says which venv this is for") from None

SEED = 20
BATCH, TOKENS = 2, 137  # three chunks of 64, the last with 9 tokens; the second row continues the text of the first
LAYER = 1  # behind the attention layer, so its input depends on more than one byte
RULE = "torch_chunk_gated_delta_rule"

# Lewis Carroll, "Alice's Adventures in Wonderland" (1865), opening. Public domain.
TEXT = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once "
    "or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, "
    "\u201cand what is the use of a book,\u201d thought Alice \u201cwithout pictures or conversations?\u201d So she "
    "was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid), "
    "whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies."
)


def build_model() -> Qwen3NextModel:
    """An attention layer (the cache asks for one) and a gated delta layer with H = 2, HV = 4, K = 24, V = 20.

    initializer_range 0.2 gives the projections about unit variance at this width (0.02 is meant for 2048), so that
    a and b move with the text instead of staying near 0.
    """
    torch.manual_seed(SEED)
    config = Qwen3NextConfig(
        vocab_size=256, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        layer_types=["full_attention", "linear_attention"], mlp_only_layers=[0, 1],
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_experts=2, num_experts_per_tok=1,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=24, linear_value_head_dim=20,
        initializer_range=0.2, dtype="float32",
    )  # fmt: skip
    model = Qwen3NextModel(config).eval()
    draw_dt_bias(model.layers[LAYER].linear_attn.dt_bias)
    return model


@torch.no_grad()
def draw_dt_bias(dt_bias: torch.Tensor) -> None:
    """softplus(dt_bias) log-uniform in 1e-3..0.1, as Mamba2 and fla draw it for training.

    transformers leaves ones, because checkpoints overwrite them; with ones nearly every gate would forget
    everything at once, and four equal biases would hide a mixed-up head.
    """
    step = torch.exp(torch.empty_like(dt_bias).uniform_(math.log(1e-3), math.log(0.1)))
    dt_bias.copy_(step + torch.log(-torch.expm1(-step)))


def text_tokens() -> torch.Tensor:
    """The first B * T bytes of the text, [B, T] int64."""
    return torch.tensor(list(TEXT.encode()[: BATCH * TOKENS])).view(BATCH, TOKENS)


@torch.no_grad()
def run_and_record(model: Qwen3NextModel) -> dict[str, torch.Tensor]:
    """One forward pass; what the layer passed to the rule and got back, and the a, b that its gates came from."""
    layer, seen = model.layers[LAYER].linear_attn, {}
    split, rule = layer.fix_query_key_value_ordering, getattr(modeling, RULE)
    calls = []

    def recording_split(*args):
        parts = split(*args)
        seen["b"], seen["a"] = parts[4:]
        return parts

    def recording_rule(query, key, value, **named):
        result = rule(query, key, value, **named)
        calls.append((query, key, value, named, result))
        return result

    layer.fix_query_key_value_ordering = recording_split
    setattr(modeling, RULE, recording_rule)
    try:
        model(input_ids=text_tokens(), use_cache=True)
    finally:
        setattr(modeling, RULE, rule)
        del layer.fix_query_key_value_ordering
    ((query, key, value, named, (out, state)),) = calls
    if query.shape[2] != layer.num_k_heads:
        raise SystemExit("this transformers repeats q and k before the call: use 5.24.0, which repeats them inside")
    if not named["use_qk_l2norm_in_kernel"] or named["initial_state"] is not None or state is None:
        raise SystemExit(f"the layer called {RULE} in an unexpected way: {named}")
    seen |= {"q": query, "k": key, "v": value, "A_log": layer.A_log, "dt_bias": layer.dt_bias}
    seen |= {"g": named["g"], "beta": named["beta"], "o": out, "final_state": state}
    return {name: tensor.detach().clone().contiguous() for name, tensor in seen.items()}


def gates(a, b, A_log, dt_bias):
    """g and beta as Qwen3NextGatedDeltaNet.forward computes them."""
    return -A_log.float().exp() * softplus(a.float() + dt_bias), b.sigmoid()


def full_form(q, k, v, a, b, A_log, dt_bias):
    """From pre-activations: what qwen3_next_gdn.yaml computes."""
    g, beta = gates(a, b, A_log, dt_bias)
    return getattr(modeling, RULE)(q, k, v, g=g, beta=beta, output_final_state=True, use_qk_l2norm_in_kernel=True)


def bare_rule(q, k, v, g, beta):
    """From unit q, k and finished gates: what gated_delta.yaml computes."""
    return getattr(modeling, RULE)(q, k, v, g=g, beta=beta, output_final_state=True)


def gradients(function, inputs: dict[str, torch.Tensor], d_o, d_state) -> dict[str, torch.Tensor]:
    """d(sum(o * d_o) + sum(final_state * d_state)) for each input, by autograd through transformers' function."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    o, state = function(**leaves)
    loss = (o * d_o).sum() + (state * d_state).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def assemble(seen: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of the file by key; stops where the record does not reproduce itself bit for bit."""
    inputs = {name: seen[name] for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias")}
    unit = {"q": modeling.l2norm(seen["q"]), "k": modeling.l2norm(seen["k"])}
    unit |= {name: seen[name] for name in ("v", "g", "beta")}
    again = dict(zip(("o", "final_state"), full_form(**inputs), strict=True))
    again |= dict(zip(("g", "beta"), gates(*(seen[n] for n in ("a", "b", "A_log", "dt_bias"))), strict=True))
    for name, tensor in again.items():
        if not torch.equal(tensor, seen[name]):
            raise SystemExit(f"{name} computed again from the captured tensors differs from what the layer saw")

    d_o, d_state = torch.randn_like(seen["o"]), torch.randn_like(seen["final_state"])
    full = gradients(full_form, inputs, d_o, d_state)
    bare = gradients(bare_rule, unit, d_o, d_state)
    del bare["v"]  # the same as full["v"]
    tensors = inputs | {f"gated_delta.{name}": tensor for name, tensor in unit.items()}
    tensors |= {"expected.o": seen["o"], "expected.final_state": seen["final_state"]}
    tensors |= {"cotangent.o": d_o, "cotangent.final_state": d_state}
    tensors |= {f"expected.d_{name}": tensor for name, tensor in full.items()}
    tensors |= {f"gated_delta.expected.d_{name}": tensor for name, tensor in bare.items()}
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def new_file(text: str) -> Path:
    """As chunkwise.runner.script has it, which this venv has not."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=new_file, default=Path(__file__).with_name("gdn_layer.safetensors"))
    out = parser.parse_args(argv).out
    if importlib.util.find_spec("fla"):
        raise SystemExit("fla is installed, so transformers would not take its own PyTorch path: use another venv")
    torch.set_num_threads(1)  # the order of sums, and so the last bit, depends on it
    model = build_model()
    tensors = assemble(run_and_record(model))
    metadata = {
        "transformers": transformers.__version__, "torch": torch.__version__, "seed": str(SEED), "layer": str(LAYER),
        "function": f"{modeling.__name__}.{RULE}", "config": model.config.to_json_string(use_diff=False),
        "text": TEXT.encode()[: BATCH * TOKENS].decode(errors="replace"),
        "scale": json.dumps(tensors["q"].shape[-1] ** -0.5), "use_qk_l2norm_in_kernel": "true",
    }  # fmt: skip
    save_file(tensors, out, metadata)
    print(f"{out}: {len(tensors)} tensors, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
