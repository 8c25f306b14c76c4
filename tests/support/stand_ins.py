"""Kernels that are wrong in one way each, without a GPU: they stand where a kernel stands and run the reference."""

import inspect
from dataclasses import replace

from support.ops import op

from chunkwise.runner.calling.function import Op
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.stages._contract import Launch, Launcher


class ByReference:
    """Stands where a kernel stands: fills the outputs from the stage's reference, and spoils one of them."""

    def __init__(self, stage, spoiled=None, spoil=None):
        self.stage, self.spoiled, self.spoil = stage, spoiled, spoil

    def __getitem__(self, grid):
        return self.run

    def run(self, tensors, named, num_warps, num_stages):
        n = len(self.stage.contract.inputs)
        given = [None if x is None else x.float() for x in tensors[:n]]
        results = self.stage.reference(*given, **named)
        for (port, x), out in zip(results.items(), tensors[n:], strict=True):
            if out is not None:
                out.copy_(self.spoil(x.clone()) if port == self.spoiled else x)

    def launch(self, *tensors, seqs, config, **named):
        return [Launch(self, (1,), {"tensors": tensors, "named": named}, {})]


def with_kernel(stage, spoiled=None, spoil=None):
    kernel = ByReference(stage, spoiled, spoil)
    launch = taking(kernel.launch, [*stage.reference_keywords, "seqs", "config"])
    return replace(stage, launchers=(Launcher("stand-in", launch, lambda axes, device: [{}]),))


def taking(function, names):
    """The function under a signature that names its keywords."""

    def launch(*tensors, **keywords):
        return function(*tensors, **keywords)

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    launch.__signature__ = inspect.Signature(parameters)
    return launch


def op_with_stand_ins(monkeypatch, name, wrong=None, port=None, spoil=None):
    """The op with stand-in kernels, the one of stage ``wrong`` spoiled: spoil, a function of its output ``port``."""
    monkeypatch.setattr("chunkwise.runner.planning.plan.require_triton", lambda backend: None)
    spec, stages = op(name).spec, find_stages()
    used = {entry.use: with_kernel(stages[entry.use]) for entry in spec.stages.values()}
    if wrong:
        use = spec.stages[wrong].use
        used[use] = with_kernel(stages[use], port, spoil)
    return Op(spec, {**stages, **used}, "interpret")
