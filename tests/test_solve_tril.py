"""N13: equal unit keys with beta near 1, whose Gram matrix has binomially large powers, keep their inverse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[1]
BETAS = (0.5, 0.99, 1.0)

INVERSES = """
import json, sys
import torch
from chunkwise.stages import solve_tril
from chunkwise.stages._seqs import Seqs

C, betas = int(sys.argv[1]), json.loads(sys.argv[2])
A = torch.ones(C, C).tril(-1)[None, :, None, :] * torch.tensor(betas)[:, None]
exact = solve_tril.reference(A.double(), C=C)["Ai"]
for dtype in (torch.float32, torch.float16):
    Ai = torch.full_like(A, torch.nan, dtype=dtype)
    config = solve_tril.configs({"C": C}, "sm_90")[0]
    for launch in solve_tril.launch(A, Ai, C=C, seqs=Seqs(1, C, C, 1), config=config):
        launch.kernel[launch.grid](**launch.args, **launch.constexprs)
    errors = [(a.double() - b).norm() / b.norm() for a, b in zip(Ai.unbind(2), exact.unbind(2))]
    print(json.dumps([float(error) for error in errors]))
"""


@pytest.mark.parametrize("C", (16, 32, 64, 128))
def test_equal_keys_keep_their_inverse(C):
    """Within rounding alone: float32 arithmetic, then 2.1e-4 of an fp16 result (rounding.RHO)."""
    command = [sys.executable, "-c", INVERSES, str(C), json.dumps(BETAS)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    float32, float16 = [json.loads(line) for line in done.stdout.splitlines()]
    assert max(float32) < 1e-7
    assert max(float16) < 2.1e-4 + 1e-7
