"""Definitions without stages, and what ``chunkwise new`` makes of them."""

from functools import cache

import pytest

from chunkwise.runner.composing.compose import compose
from chunkwise.runner.loading.load_recurrence import parse_recurrence
from chunkwise.runner.main import main
from chunkwise.runner.stage_files.stage_library import find_stages

SIZES = ("--axes", "T=9,C=4,K=8,V=6,H=1,HV=2", "--device", "cpu")
HEAD = """\
schema: pipeline/v1
name: mine
axes: {C: 64}
inputs:
  q: B T H K
  k: B T H K
  v: B T HV V
"""
G = '  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}\n'
G_K = G.replace("B T HV,", "B T HV K,")
BETA = "  beta: {shape: B T HV, where: 0..1}\n"
STATE = "  initial_state: {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}\n"
PARAMS = "params: {scale: K ** -0.5}\n"


def text_of(inputs, lines, state="initial_state", final="{final_state: S}"):
    steps = "".join(f"    - {line}\n" for line in lines)
    end = f"  final: {final}\n" if final else ""
    return f"{HEAD}{inputs}{PARAMS}definition:\n  state: {{S: {state}}}\n  step:\n{steps}{end}"


@cache
def shipped():
    return find_stages()


def composed(text, stages=None):
    return compose(parse_recurrence(text, "mine.yaml"), stages or shipped(), "found.yaml")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def chunkwise(capsys):
    """(exit code, stdout, stderr without the lines of progress) of a command line."""

    def run(*argv):
        code = main([str(each) for each in argv])
        out, err = capsys.readouterr()
        progress = (" stages tried (", "verify: ", "a stage of its own: ")
        return code, out, "\n".join(line for line in err.split("\n") if not any(each in line for each in progress))

    return run
