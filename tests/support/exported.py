"""An exported file beside the op that it came from: the same bits, forward and backward."""

import importlib.util
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch

from chunkwise.runner.exporting.export import export

from .ops import same_bits

ROOT = Path(__file__).parents[2]
numbers = count()


def ruff(command, text):
    """What ruff prints for a text, under the project's own settings."""
    found = shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("ruff is not installed")
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "-"]
    return subprocess.run([found, command, *options], input=text, capture_output=True, text=True).stdout


def module_of(text, folder):
    """The file's module, under a name of its own."""
    path = folder / f"exported_{next(numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(function, given, trained, cotangents, **keywords):
    """(outputs, gradients by trained input), for cotangents in the order of the outputs; None leaves one out."""
    leaves = {name: given[name].clone().requires_grad_() for name in trained}
    outputs = function(**{**given, **leaves}, **keywords)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else [x for x in outputs if x is not None]
    pairs = [(x, d) for x, d in zip(outputs, cotangents) if d is not None]
    torch.autograd.backward([x for x, _ in pairs], [d for _, d in pairs])
    return [x.detach() for x in outputs], {name: x.grad for name, x in leaves.items()}


def check_exported(op, backend, given, folder, keywords=None, only=None, **options):
    """The file's function gives the op's bits. keywords: of the call; only: the output that the loss is taken of."""
    function = getattr(module_of(export(op, backend, **options), folder), op.spec.name)
    keywords = keywords or {}
    wanted = {"outputs": options["outputs"]} if options.get("outputs") else {}
    names = options.get("outputs") or list(op.spec.outputs)
    whole = op(**given, **keywords, **wanted)
    generator = torch.Generator().manual_seed(5)
    cotangents = [
        torch.randn(x.shape, generator=generator).to(x) if only in (None, name) else None
        for name, x in ((name, getattr(whole, name)) for name in names)
    ]
    absent = frozenset(name for name, x in given.items() if x is None)
    trained = [name for name, x in given.items() if x is not None and op.has_gradient(name, absent)]
    outputs, gradients = run(lambda **each: op(**each, **wanted), given, trained, cotangents, **keywords)
    own = {name: x for name, x in given.items() if name not in options.get("without", ())}
    got, got_gradients = run(function, own, trained, cotangents, **keywords)
    assert len(got) == len(names) and all(map(same_bits, got, outputs))
    for name, gradient in got_gradients.items():
        expected = gradients[name]
        if only and expected is None:
            assert not gradient.any()
        else:
            assert torch.equal(gradient, expected) if only else same_bits(gradient, expected), name
