"""What the README shows works: the variant and the stage, as written there."""

import re
from pathlib import Path

import pytest

from chunkwise.runner.main import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(language, first):
    """The README's code block in a language that begins with these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (found,) = (each for each in blocks if each.startswith(first))
    return found


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("silu_gla.yaml").write_text(block("yaml", "schema: pipeline/v1"))
    Path("silu.py").write_text(block("python", '"""SiLU'))


def test_the_variant_with_its_stage(written, capsys):
    assert main(["check", "silu_gla.yaml", "--stages", "."]) == 0, capsys.readouterr().err
    sizes = "B=1,T=70,H=1,HV=2,K=16,V=24"
    assert main(["verify", "silu_gla.yaml", "--stages", ".", "--axes", sizes, "--device", "cpu"]) == 0


def test_the_variant_needs_its_stage(written, capsys):
    assert main(["check", "silu_gla.yaml"]) == 2
    assert "there is no stage silu" in capsys.readouterr().err


def test_every_target_and_command_that_is_named_exists(capsys):
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for targets in re.findall(r"^make ([a-z -]+)|`make ([a-z -]+)", README, re.MULTILINE):
        for target in "".join(targets).split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for command in set(re.findall(r"^chunkwise ([a-z]+)|`chunkwise ([a-z]+)", README, re.MULTILINE)):
        assert main(["".join(command), "--help"]) == 0
