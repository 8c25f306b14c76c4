"""The example of every explanation really brings about its code."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from chunkwise.runner.diagnostics.explanations import EXPLANATIONS
from chunkwise.runner.main import main

PIPELINE = (Path(__file__).parents[1] / "pipelines" / "gated_delta.yaml").read_text()
CALLS = {"CW230", "CW603", "CW604", "CW609", "CW611", "CW622"}
"""Examples in Python: tests of calls have them."""
STAGE_FILES = {"CW501", "CW502", "CW503", "CW506", "CW806"}
"""Parts of a stage file: tests of stage files have them."""
MACHINES = {"CW702", "CW703", "CW704", "CW711", "CW801", "CW803", "CW804", "CW807", "CW901"}
"""What a machine, a kernel or chunkwise itself must be wrong for."""
GPU = {"CW605": True, "CW701": False}
"""Whether the machine must have one for the command to end with the code."""
COMMANDS = {code for code, text in EXPLANATIONS.items() if text.example.startswith("chunkwise ")} - MACHINES
VARIANTS = {"CW215", "CW216", "CW217", "CW218", "CW219"}
"""Files that extend another: tests/test_extends.py has them."""
WARNINGS = {"CW241", "CW242", "CW243", "CW244"}
"""No errors: tests/test_check_warnings.py has them."""
SNIPPETS = EXPLANATIONS.keys() - VARIANTS - WARNINGS - COMMANDS - CALLS - STAGE_FILES - MACHINES


def with_snippet(snippet):
    """gated_delta with the snippet in place of what it names: a key of the file, an entry of inputs or stages, the
    line of the step that assigns the same name. A new entry comes first in its section."""
    text = PIPELINE
    for line in snippet.splitlines():
        line = line.split("      #")[0]
        if line.startswith("- "):
            name = re.match(r"- (\w+) =", line)[1]
            text = replaced(rf"    - {name} = .*\n", f"    {line}\n", text)
        elif line.startswith("  "):
            section, name = "stages" if "use" in line else "inputs", line.strip().split(":")[0]
            there = re.search(rf"(?ms)^{section}:\n(  .*\n)*?  {name}:", text)
            old, new = (rf"  {name}:.*\n", line + "\n") if there else (f"{section}:\n", f"{section}:\n{line}\n")
            text = replaced(old, new, text)
        else:
            text = replaced(rf"{line.split(':')[0]}:.*\n(?: .*\n)*", line + "\n", text)
    return text


def replaced(old, new, text):
    """The first of what old matches, from the start of a line."""
    text, found = re.subn("(?m)^" + old, lambda _: new, text, count=1)
    assert found == 1, new
    return text


def codes_said(capsys, *argv):
    main(list(argv))
    return re.findall(r"error\[(CW\d+)\]", capsys.readouterr().err)


@pytest.mark.parametrize("code", sorted(SNIPPETS))
def test_a_part_of_a_pipeline(code, capsys, tmp_path):
    (tmp_path / "op.yaml").write_text(with_snippet(EXPLANATIONS[code].example))
    assert code in codes_said(capsys, "check", str(tmp_path / "op.yaml"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that examples speak of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_stages").mkdir()
    (tmp_path / "my_stages" / "chunk_o.py").write_text("")
    (tmp_path / "capture.pt").write_bytes(b"PK")
    start, last = PIPELINE[: PIPELINE.index("stages:")], "    - o = scale * (q @ S)\n"
    (tmp_path / "recurrence.yaml").write_text(start.replace(last, "").replace("  step:\n", f"  step:\n{last}"))
    state = {"q": (1, 8, 1, 4), "k": (1, 8, 1, 4), "v": (1, 8, 1, 4), "g": (1, 8, 1), "beta": (1, 8, 1)}
    save_file({name: torch.full(shape, 0.25) for name, shape in state.items()}, "capture.safetensors")


@pytest.mark.parametrize("code", sorted(COMMANDS))
def test_a_command(code, capsys, files):
    if GPU.get(code, torch.cuda.is_available()) != torch.cuda.is_available():
        pytest.skip(f"a machine {'with' if GPU[code] else 'without'} a GPU says so")
    command, _, _ = EXPLANATIONS[code].example.partition("   #")
    assert code in codes_said(capsys, *shlex.split(command)[1:])
