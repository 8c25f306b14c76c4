"""Every kernel's default configuration compiles for sm_80, sm_90 and sm_100: shared memory, spills.

The compiler runs in a process of its own: kernels that a test decorated for the interpreter cannot be compiled.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("triton")

ROOT = Path(__file__).parents[1]
SPILLS = Path(__file__).with_name("spills.yaml")
STAGES = sorted(path.stem for path in (ROOT / "stages").glob("[!_]*.py"))
PARTS = 4


def environment():
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def compile_check(*arguments):
    command = [sys.executable, "-m", "chunkwise.runner.compiling.compile_check", "--workers", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_default_configurations(part):
    """A process for each quarter of the stages: most of what one takes is its start."""
    done = compile_check("--json", *STAGES[part::PARTS])
    assert done.stdout, done.stderr
    hold(json.loads(done.stdout))
    assert done.returncode == 0, done.stderr


def hold(rows):
    """No fault in any row, and no more spills than tests/spills.yaml allows."""
    assert [f"{row['kernel']} sm_{row['arch']}: {row['fault']}" for row in rows if row["fault"]] == []
    allowed = yaml.safe_load(SPILLS.read_text())
    spills = {}
    for row in rows:
        by_arch = spills.setdefault(f"{row['stage']}/{row['kernel']}", {})
        by_arch[f"sm_{row['arch']}"] = max(row["spills"], by_arch.get(f"sm_{row['arch']}", 0))
    missing = [f"{name}: {by_arch}".replace("'", "") for name, by_arch in spills.items() if name not in allowed]
    assert not missing, "\n".join(["lines to add to tests/spills.yaml:", *missing])
    worse = [
        f"{name}: {bytes} bytes of spills on {arch}, {allowed[name][arch]} in tests/spills.yaml"
        for name, by_arch in spills.items()
        for arch, bytes in by_arch.items()
        if bytes > allowed[name][arch]
    ]
    assert worse == []


ONE_GROUP = """
import json
from chunkwise.runner.compiling.compile_cases import first_configs, usual_sizes
from chunkwise.runner.compiling.compile_check import check, stages

rows = []
for stage in (stages()["chunk_delta_o"], stages()["chunk_h_o"]):
    axes = usual_sizes(stage) | {"HV": 96}
    for case in first_configs(stage, False, 0, stage.launchers[0], axes, "plain", "bf16", 90, 2):
        rows += [row.as_json() for row in check(case)]
print(json.dumps(rows))
"""


def test_the_kernel_for_hopper_of_one_group():
    """The second configuration that ships for these stages."""
    command = [sys.executable, "-c", ONE_GROUP]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["kernel"] for row in rows] == 2 * ["chunk_delta_o_groups_sm90_kernel", "chunk_delta_o_sm90_kernel"]
    hold(rows)


def test_spills_name_only_kernels_that_exist():
    names = {name.split("/")[0].removesuffix(".vjp") for name in yaml.safe_load(SPILLS.read_text())}
    assert names <= set(STAGES)


def test_an_unknown_stage_is_a_usage_error():
    done = compile_check("l2nrom")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error[CW221]: there is no stage 'l2nrom'\nhelp: did you mean l2norm?\n"


HARD_KERNELS = """
import json, torch, triton, triton.language as tl
from chunkwise.runner.compiling.compile_cases import Case
from chunkwise.runner.compiling.compile_check import Row
from chunkwise.runner.compiling.compile_kernel import compile_launch
from chunkwise.stages._contract import Launch

@triton.jit
def wrong(x, n):
    tl.store(x, nothing)

@triton.jit
def large(x, n):
    o = tl.arange(0, 256)[:, None] * 256 + tl.arange(0, 256)[None, :]
    tl.store(x + o, tl.dot(tl.load(x + o), tl.load(x + o)))

x = torch.empty(4, device="meta")
case = Case("hard", False, 0, {}, "plain", "fp32", {}, 90)
launches = [Launch(kernel, (1,), {"x": x, "n": 3}, {}) for kernel in (wrong, large)]
print(json.dumps([Row(case, "", compile_launch(launch, 90)).as_json() for launch in launches]))
"""


def test_faults_are_found(tmp_path):
    """A kernel that does not compile is a row, not a traceback; too much shared memory and spills are seen."""
    script = tmp_path / "hard_kernels.py"
    script.write_text(HARD_KERNELS)
    done = subprocess.run([sys.executable, script], env=environment(), cwd=ROOT, capture_output=True, text=True)
    wrong, large = json.loads(done.stdout)
    assert wrong["fault"] == "CompilationError: NameError('nothing is not defined')"
    assert large["fault"] == "524288 bytes of shared memory, sm_90 has 232448"
    assert large["spills"] > 1000 and large["matrix"] == "wgmma"


LATENT = """
import json, torch
from dataclasses import asdict
from chunkwise.runner.compiling.compile_check import stages
from chunkwise.runner.compiling.compile_kernel import compile_launch
from chunkwise.runner.compiling.meta_launches import meta_launches

sizes = dict(B=64, T=64, H=1, HV=1, K=64, V=64, C=64, Sq=1, Sk=16384, HQ=128, DC=512, DR=64, PAGES=900, PAGE=64, NP=256)
found = []
for name in ("latent_attention", "paged_latent_attention"):
    launcher = stages()[name].launchers[0]
    config = launcher.configs(sizes, "sm_90")[0]
    for launch in meta_launches(stages()[name].contract, launcher, False, sizes, torch.bfloat16, "plain", config):
        compiled = asdict(compile_launch(launch, 90))
        found.append([launch.kernel.__name__, launch.grid, config["SPLITS"], compiled])
print(json.dumps(found))
"""


def test_latent_decoding_on_hopper(tmp_path):
    """With as many heads as DeepSeek-V3 has: its own kernel, 8 splits in each program, within what is on chip."""
    script = tmp_path / "latent.py"
    script.write_text(LATENT)
    done = subprocess.run([sys.executable, script], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kernel, grid, splits, compiled in json.loads(done.stdout):
        assert kernel in ("latent_decode_sm90_kernel", "combine_splits_kernel") and splits == 32
        assert (compiled["error"], compiled["spills"]) == ("", 0)
        if kernel == "latent_decode_sm90_kernel":
            assert grid == [64 * 2 * 32 // 8] and compiled["matrix"] == "wgmma" and compiled["shared"] <= 227 * 1024


KEYS = """
import json, torch
from dataclasses import asdict
from chunkwise.runner.compiling.compile_check import stages
from chunkwise.runner.compiling.compile_kernel import compile_launch
from chunkwise.runner.compiling import meta_launches

sizes = dict(B=1, T=64, H=8, HV=1, K=64, V=64, C=64, Sq=4096, Sk=4096, HQ=32, D=128, DV=128)
stage = stages()["flash_bwd_dkdv"]
config = stage.launchers[0].configs(sizes, "sm_90")[0]
meta_launches.optional = lambda name, contract, backward: name in ("own", "slopes", "sequence", "start")
found = []
for launch in meta_launches.meta_launches(
    stage.contract, stage.launchers[0], False, sizes, torch.bfloat16, "bare", config
):
    found.append([launch.kernel.__name__, asdict(compile_launch(launch, 90))])
print(json.dumps(found))
"""


def test_gradients_of_keys_on_hopper(tmp_path):
    """Without what its own kernel does not take. Spills are outside of its loops."""
    script = tmp_path / "keys.py"
    script.write_text(KEYS)
    done = subprocess.run([sys.executable, script], env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(done.stdout))
    assert list(found) == ["query_rows_kernel", "query_span_kernel", "flash_bwd_dkdv_sm90_kernel"]
    assert [compiled["error"] for compiled in found.values()] == [""] * 3
    keys = found["flash_bwd_dkdv_sm90_kernel"]
    assert keys["matrix"] == "wgmma" and keys["spills"] <= 80 and keys["shared"] <= 227 * 1024
