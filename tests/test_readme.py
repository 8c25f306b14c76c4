"""What the README shows works: the variant and the stage, as written there."""

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from chunkwise.runner.main import main
from chunkwise.runner.reporting.report_run import run_table
from chunkwise.runner.reporting.timing import StageTiming, Timing, Timings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]


def timed(line):
    """A row of the README's table as it was measured: the rates as FLOPs and bytes."""
    id, stage, backend, *cells = (cell.strip() for cell in line.strip("│").split("│"))
    ms, tflops, gbps = (float(cells[at]) for at in (0, 3, 4))
    p20, p80 = map(float, cells[1].split(" - "))
    return StageTiming(id, stage, "forward", backend, Timing(ms, p20, p80, 50, 0.5), tflops * ms * 1e9, gbps * ms * 1e6)


def test_the_table_is_what_run_prints():
    """Its measured figures, printed by the code that prints a run's, give the README's lines again."""
    text = README[README.index("gated_delta: bf16, cuda:0") :].partition("```")[0]
    sizes = dict(pair.split("=") for pair in text.splitlines()[0].split("cuda:0, ")[1].split(", "))
    rows = [timed(line) for line in text.splitlines() if " triton " in line]
    whole = Timing(sum(row.timing.median_ms for row in rows) - 0.0111, 1.329, 1.336, 50, 0.1)
    call = SimpleNamespace(graph=SimpleNamespace(name="gated_delta"), io=torch.bfloat16, device="cuda:0", sizes=sizes)
    timings = Timings(None, tuple(rows), whole, "", None)
    console = Console(width=200, no_color=True, highlight=False, soft_wrap=True, file=io.StringIO())
    console.print(run_table(SimpleNamespace(call=call, timings=timings)), markup=False)
    assert text.startswith(console.file.getvalue())


def test_pages_name_no_page_that_is_not_here():
    there = {each.name for each in PAGES}
    code = (file for part in ("runner", "stages", "kernels", "tests") for file in (ROOT / part).rglob("*.py"))
    for file in (*PAGES, *code):
        named = set(re.findall(r"[\w-]+\.md\b", file.read_text(encoding="utf-8")))
        assert named <= there, file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_keeps_to_120_columns(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120] == []


def block(language, first):
    """The README's code block in a language that begins with these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (found,) = (each for each in blocks if each.startswith(first))
    return found


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("silu_gla.yaml").write_text(block("yaml", "schema: pipeline/v1\nname: silu_gla"))
    Path("rms_gla.yaml").write_text(block("yaml", "schema: pipeline/v1\nname: rms_gla"))
    Path("rms.py").write_text(block("python", '"""Rows'))


@pytest.mark.parametrize("file", ["silu_gla.yaml", "rms_gla.yaml"])
def test_the_variants_are_right(written, capsys, file):
    assert main(["check", file, "--stages", "."]) == 0, capsys.readouterr().err
    sizes = "T=20,H=1,HV=2,K=8,V=4"
    assert main(["verify", file, "--stages", ".", "--axes", sizes, "--device", "cpu", "--backward"]) == 0


def test_a_variant_needs_its_stage(written, capsys):
    assert main(["check", "rms_gla.yaml"]) == 2
    assert "there is no stage rms" in capsys.readouterr().err


def test_the_stages_of_the_variant_are_found(written, capsys):
    """Without stages and outputs, new writes a file that does the same."""
    text = Path("silu_gla.yaml").read_text()
    Path("recurrence.yaml").write_text(text[: text.index("stages:")])
    assert main(["new", "again", "--from", "recurrence.yaml"]) == 0, capsys.readouterr().err
    assert main(["diff", "silu_gla.yaml", "again.yaml"]) in (0, 1)
    assert main(["check", "again.yaml"]) == 0


def test_every_target_and_command_that_is_named_exists(capsys):
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for targets in re.findall(r"^make ([a-z -]+)|`make ([a-z -]+)", README, re.MULTILINE):
        for target in "".join(targets).split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for command in set(re.findall(r"^chunkwise ([a-z]+)|`chunkwise ([a-z]+)", README, re.MULTILINE)):
        assert main(["".join(command), "--help"]) == 0
