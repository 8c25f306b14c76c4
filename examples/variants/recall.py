"""Train the variants of this folder on associative recall and plot how their losses fall.

    python examples/variants/recall.py [--pipeline NAME|FILE ...] [--steps 200] [--out recall.svg]

A sequence shows pairs of a key and a value, one pair a token, then asks for every key again in another order; the model
is to answer with its value. It has one layer: embeddings, one op as the mixer, a linear head. All that the op remembers
of the pairs is in its state, and gradients reach every input of the op, or the loss stays where it starts, at
log(values) nats. The op's inputs and their laws are read from its pipeline, so any pipeline of tokens can be trained.

Prints the first and the last loss and accuracy of each, and writes one picture. CPU, one thread, float32, seeded: the
same numbers at every run on one machine. Exits 1 where a loss did not fall.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, softplus

from chunkwise.runner import ChunkwiseError, Diagnostic, load
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.reporting.write_file import refusals
from chunkwise.runner.script import new_file, told, whole

FOLDER = Path(__file__).parent
SIX = ("gated_delta_negative", "gated_delta_output_gate", "comba", "gla_normalised", "kda_scalar_gate", "coupled_delta")
SIZES = {"H": 2, "HV": 2, "K": 16, "V": 16}
CHUNK = 16
"""Tokens in a chunk: short, so that what is asked for lies in an earlier one and comes through the state."""
START = {"a": -4.0, "g": -4.0, "A_log": 0.0, "weight": 1.0}
"""Where biases and parameters start, in place of 0: gates nearly open to the past, as models start them."""


@dataclass(frozen=True)
class Task:
    """Sequences of 2 pairs tokens: first the pairs, each key once, then the keys alone."""

    pairs: int = 12
    values: int = 8
    batch: int = 16

    def draw(self, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """keys, values [batch, 2 pairs]: of each token; the values of the second half are what is asked for."""
        order = torch.rand(2, self.batch, self.pairs, generator=random).argsort(-1)
        values = torch.randint(self.values, (self.batch, self.pairs), generator=random)
        return order.transpose(0, 1).flatten(1), torch.cat([values.gather(1, turn) for turn in order], 1)


def within(x: Tensor, laws) -> Tensor:
    """Any numbers x [..., last axis] as numbers that keep an input's laws."""
    for law in laws:
        if law.kind == "unit_norm":
            x = normalize(x, dim=-1)
        elif math.isfinite(law.low) and math.isfinite(law.high):
            x = law.low + (law.high - law.low) * x.sigmoid()
        else:
            x = law.low + softplus(x) if math.isfinite(law.low) else law.high - softplus(x)
    return x


def mixer_op(source: str):
    """The op of a pipeline. Raises ChunkwiseError where its inputs cannot be made from tokens here."""
    op = load(source, backend="reference")
    for name, entry in op.spec.inputs.items():
        value = op.whole.inputs[name]
        axes = sorted({str(axis) for axis in value.axes} - {"B", "T", *SIZES})
        laws = [law.text for law in value.laws if law.kind not in ("unit_norm", "interval")]
        if not entry.optional and (axes or laws):
            lack = f"sizes for {', '.join(axes)}" if axes else f"numbers for the law {laws[0]}"
            message = f"recall.py has no {lack}, and {op.spec.name} wants them for {name}"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="take an op of tokens, such as simple_gla"))
    return op.with_axes({"C": CHUNK}) if "C" in op.spec.axes else op


class Mixer(nn.Module):
    """An op between two linear maps. Its inputs per token are linear in the token, the others are parameters; those
    that are optional stay away."""

    def __init__(self, op, width: int):
        super().__init__()
        self.op = op
        self.inputs = {name: op.whole.inputs[name] for name, entry in op.spec.inputs.items() if not entry.optional}
        self.shapes = {name: [SIZES[axis] for axis in v.axes if axis not in "BT"] for name, v in self.inputs.items()}
        self.by_token, self.fixed = nn.ModuleDict(), nn.ParameterDict()
        for name, value in self.inputs.items():
            if "T" in value.axes:
                self.by_token[name] = nn.Linear(width, math.prod(self.shapes[name]))
                nn.init.constant_(self.by_token[name].bias, START.get(name, 0.0))
            else:
                self.fixed[name] = nn.Parameter(torch.full(self.shapes[name], START.get(name, 0.0)))
        self.leave = nn.Linear(SIZES["HV"] * SIZES["V"], width)

    def raw(self, name: str, x: Tensor) -> Tensor:
        if name in self.by_token:
            return self.by_token[name](x).unflatten(-1, self.shapes[name])
        return self.fixed[name]

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [batch, tokens, width]."""
        given = {name: within(self.raw(name, x), value.laws) for name, value in self.inputs.items()}
        return self.leave(self.op(**given, outputs=["o"]).o.flatten(2))


class Recall(nn.Module):
    """Scores of the values [batch, tokens, values] from the keys and values of the tokens; asking shows no value."""

    def __init__(self, op, task: Task, width: int = 64):
        super().__init__()
        self.key, self.value = nn.Embedding(task.pairs, width), nn.Embedding(task.values + 1, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.mixer, self.head, self.task = Mixer(op, width), nn.Linear(width, task.values), task

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        shown = torch.where(torch.arange(keys.shape[1]) < self.task.pairs, values, self.task.values)
        x = self.key(keys) + self.value(shown)
        x = x + self.mixer(self.norms[0](x))
        return self.head(self.norms[1](x))


def train(op, task: Task, steps: int, seed: int = 0) -> Tensor:
    """[steps, 2]: the mean loss (nats) and the accuracy of what is asked for, before each step."""
    torch.manual_seed(seed)
    model, random = Recall(op, task), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    curve = []
    for _ in range(steps):
        keys, values = task.draw(random)
        scores, wanted = model(keys, values)[:, task.pairs :], values[:, task.pairs :]
        loss = cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        missing = [name for name, p in model.named_parameters() if p.grad is None]
        assert not missing, f"no gradient reaches {missing}"
        optimiser.step()
        curve.append([loss.item(), (scores.argmax(-1) == wanted).float().mean().item()])
    return torch.tensor(curve)


def smooth(curve: Tensor, over: int = 8) -> Tensor:
    """Means over the last steps of each step, as many as there are."""
    sums = torch.cat([curve.new_zeros(1, 2), curve.cumsum(0)])
    at = torch.arange(1, len(curve) + 1)
    first = (at - over).clamp(min=0)
    return (sums[at] - sums[first]) / (at - first)[:, None]


def draw(curves: dict[str, Tensor], task: Task, path: Path):
    """Loss and accuracy side by side, one line per op; grey on no background, for light pages and dark ones."""
    grey = dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], "#808080")
    with matplotlib.rc_context({**grey, "svg.hashsalt": "recall", "font.size": 9}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        axes = figure.subplots(1, 2)
        chance = [math.log(task.values), 1 / task.values]
        for place, (at, title) in enumerate(zip(axes, ("loss, nats", "accuracy"))):
            at.axhline(chance[place], color="#808080", linewidth=0.8, linestyle=":", label="chance")
            for name, curve in curves.items():
                at.plot(smooth(curve)[:, place], linewidth=1.4, label=name)
            at.set(title=title, xlabel="step", ylim=(0, None), facecolor="none")
            at.spines[["top", "right"]].set_visible(False)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        with refusals(path):
            figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None)


def picture(text: str) -> Path:
    path, known = new_file(text), Figure().canvas.get_supported_filetypes()
    if path.suffix[1:] not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is no picture: it ends in none of .{', .'.join(known)}")
    return path


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", nargs="+", default=[str(FOLDER / f"{name}.yaml") for name in SIX])
    parser.add_argument("--steps", type=whole, default=200)
    parser.add_argument("--pairs", type=whole, default=Task.pairs)
    parser.add_argument("--batch", type=whole, default=Task.batch)
    parser.add_argument("--out", type=picture, default="recall.svg")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    task, curves = Task(pairs=options.pairs, batch=options.batch), {}
    ops = [mixer_op(source) for source in options.pipeline]
    print(f"{'pipeline':26} loss: first    last   accuracy: first    last")
    for op in ops:
        curves[op.spec.name] = curve = train(op, task, options.steps)
        (loss, right), (last_loss, last_right) = curve[0].tolist(), smooth(curve)[-1].tolist()
        print(f"{op.spec.name:26} {loss:11.3f} {last_loss:7.3f} {right:17.3f} {last_right:7.3f}", flush=True)
    draw(curves, task, options.out)
    print(f"wrote {options.out}")
    return 0 if all(smooth(curve)[-1, 0] < curve[0, 0] for curve in curves.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
