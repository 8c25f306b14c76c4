"""What an exported file carries with it besides its stages: export.py copies the methods that a file needs.

INPUTS and OPTIONAL stand here as an example; an exported file has its own.
"""

import inspect
from functools import partial

import torch

from ...stages._seqs import Seqs

INPUTS = {"q": ("B T H K", "io"), "initial_state": ("N HV K V", "f32")}
OPTIONAL = {"initial_state"}


class Run:
    """One call: dtypes, device, axis sizes and sequences of its tensors; runs stages."""

    def __init__(self, tensors, sizes):
        """tensors: input -> tensor or None. sizes: what is known already. ValueError for what does not fit, by name."""
        given = {name: x for name, x in tensors.items() if x is not None or name not in OPTIONAL}
        for name, x in given.items():
            if not isinstance(x, torch.Tensor):
                raise ValueError(f"{name} must be a tensor, it is {type(x).__name__}")
        self.io = next((x.dtype for name, x in given.items() if INPUTS[name][1] == "io"), torch.float32)
        self.f32 = torch.float64 if self.io == torch.float64 else torch.float32
        self.device = next(iter(given.values())).device
        self.sizes = dict(sizes)
        for name, x in given.items():
            self.check(name, x, *INPUTS[name])

    def check(self, name, x, axes, kind):
        """Take the axis sizes of an input, or refuse it."""
        axes = axes.split()
        known = [int(axis) if axis.isdigit() else self.sizes.get(axis, size) for axis, size in zip(axes, x.shape)]
        if x.dim() != len(axes) or known != list(x.shape):
            sizes = ", ".join(f"{axis} = {size}" for axis, size in self.sizes.items() if axis in axes)
            raise ValueError(f"{name} must be [{' '.join(axes)}] {sizes}; its shape is {list(x.shape)}")
        self.sizes |= dict(zip(axes, known))
        if "B" in axes:
            self.sizes.setdefault("N", self.sizes["B"])
        held = {"int": [torch.int32, torch.int64], "q8": [torch.int8, torch.float8_e4m3fn]}
        dtypes = {"io": [self.io], "f32": [self.f32], **held}[kind]
        if x.dtype not in dtypes or x.device != self.device:
            wanted = " or ".join(map(str, dtypes))
            raise ValueError(f"{name} must be {wanted} on {self.device}, it is {x.dtype} on {x.device}")

    def cut(self):
        """Count the chunks: one sequence for each row of the batch."""
        T, C, N = self.sizes.setdefault("T", 1), self.sizes.setdefault("C", 1), self.sizes.setdefault("N", 1)
        if N != self.sizes.get("B", N):
            raise ValueError(f"there are {N} states for B = {self.sizes['B']} sequences")
        self.sizes["NT"] = -(-T // C)

    def rows(self):
        """One sequence for each row of the batch."""
        self.cut()
        self.seqs = Seqs(*self.axes("N T C NT"))

    def pack(self, seqlens):
        """Packed sequences of these lengths."""
        self.sizes.setdefault("C", 1)
        B, T, C, N = self.axes("B T C N")
        if B != 1 or min(seqlens, default=0) < 0 or sum(seqlens) > T:
            raise ValueError(f"seqlens are lengths of at most T = {T} tokens in all, in a batch of B = 1; here B = {B}")
        self.sizes["NT"] = NT = (T + N * (C - 1)) // C
        counts = [-(-length // C) for length in seqlens]
        slots = [(n, chunk) for n, count in enumerate(counts) for chunk in range(count)]
        slots += [(-1, 0)] * (NT - len(slots))
        table = torch.tensor(slots, dtype=torch.int32).reshape(NT, 2)
        starts, offsets = (torch.tensor([0, *each], dtype=torch.int32).cumsum(0).int() for each in (seqlens, counts))
        tables = (each.to(self.device) for each in (starts, table, offsets))
        self.seqs = Seqs(N, T, C, NT, *tables, tuple(seqlens))

    def clear(self, *tensors):
        """Zeros in the rows past the last sequence."""
        if self.seqs.packed:
            for x in filter(torch.is_tensor, tensors):
                x[:, sum(self.seqs.lengths) :].zero_()

    def axes(self, names):
        return [self.sizes[name] for name in names.split()]

    def empty(self, dtype, *shape):
        return torch.empty(shape, dtype=dtype, device=self.device)

    def need_kernels(self):
        """Refuse tensors that Triton's kernels, or its interpreter, do not take."""
        import triton

        interpreted = bool(triton.knobs.runtime.interpret)
        if self.device.type != ("cpu" if interpreted else "cuda"):
            where = "on the CPU, as TRITON_INTERPRET is set" if interpreted else "on a GPU"
            other = "`chunkwise export --backend reference` writes a file that runs anywhere"
            raise ValueError(f"the kernels run {where}; the tensors are on {self.device} ({other})")
        if self.io == torch.float64 or (interpreted and self.io != torch.float32):
            raise ValueError(f"the {'interpreter takes float32' if interpreted else 'kernels take no float64'}")

    def launch(self, launchers, inputs, outputs, **named):
        """Run the first launcher that takes these sizes.

        inputs, outputs: the stage's, in its order; None where absent or not wanted. named: its params, and axes that it
        knows by another name.
        """
        known, device = {**self.sizes, **named}, self.device.type
        if device == "cuda":
            device = "sm_{}{}".format(*torch.cuda.get_device_capability(self.device))
        refusals = [each.when(known, device) for each in launchers]
        if None not in refusals:
            raise ValueError(f"no kernel takes these sizes: {'; '.join(refusals)}")
        launcher = launchers[refusals.index(None)]
        config = launcher.configs(known, device)[0]
        scratch = [self.scratch(port, {**known, **config}) for port in launcher.scratch.values()]
        parameters = inspect.signature(launcher.launch).parameters.values()
        keywords = {p.name: known[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in known}
        for each in launcher.launch(*inputs, *outputs, *scratch, **keywords, seqs=self.seqs, config=config):
            if all(each.grid):
                options = {"num_warps": each.num_warps, "num_stages": each.num_stages}
                each.kernel[each.grid](**each.args, **each.constexprs, **options)

    def scratch(self, port, sizes):
        shape = [int(axis) if axis.isdigit() else sizes[axis] for axis in port.axes]
        return self.empty({"io": self.io, "f32": self.f32, "int": torch.int32}[port.dtype], *shape)

    def evaluate(self, function, outputs, **named):
        """A stage's reference in float32 (float64 for float64 tensors): one tensor or a tuple, each rounded once.

        outputs: name -> dtype, None for one that is not wanted. named: tensors, None where absent; axes and params.
        """
        found = function(**self.wide(named))
        results = [found[name].to(dtype).contiguous() if dtype else None for name, dtype in outputs.items()]
        return results[0] if len(results) == 1 else tuple(results)

    def gradient(self, vjp, outputs, **named):
        """A stage's vjp, as evaluate takes a reference."""
        needs = frozenset(name for name, dtype in outputs.items() if dtype)
        return self.evaluate(partial(vjp, needs=needs), outputs, **named)

    def differentiate(self, reference, outputs, cotangents, **named):
        """The gradient of a stage without a vjp, by autograd. cotangents: output -> tensor."""

        def vjp(*, needs, **given):
            with torch.enable_grad():
                leaves = {name: given[name].detach().requires_grad_() for name in sorted(needs)}
                forward = reference(**{**given, **leaves})
                pairs = [(forward[name], d) for name, d in self.wide(cotangents).items() if forward[name].requires_grad]
                if not pairs:
                    return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
                heads, incoming = zip(*pairs)
                found = torch.autograd.grad(heads, list(leaves.values()), incoming, materialize_grads=True)
            return dict(zip(leaves, found))

        return self.gradient(vjp, outputs, **named)

    def wide(self, named):
        floats = {name: x for name, x in named.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
        return {**named, **{name: x.to(self.f32) for name, x in floats.items()}}
