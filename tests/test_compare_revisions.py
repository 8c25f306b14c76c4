"""``compare REV REV --pipe``: each revision by its own code, by turns, and nothing is left behind.

The revisions are of a small repository whose ``bench`` writes records at once: what it writes stands in its tree.
"""

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import FULL

from chunkwise.runner.benching.record import Source, line
from chunkwise.runner.comparing import trees
from chunkwise.runner.comparing.rounds import over_rounds
from chunkwise.runner.main import main
from chunkwise.runner.reporting.clocks import Timing

BENCH = '''\
import json, pathlib, sys
home, (command, *argv) = pathlib.Path(__file__).parents[1], sys.argv[1:]
assert command == "bench" and argv[-1] == "--json", argv
out = pathlib.Path(argv[argv.index("--out") + 1])
with open(LOG, "a") as log:
    print(home.parent.name, *argv[: argv.index("--out")], file=log)
print("[1/1] op: time scan", file=sys.stderr)
errors = []
if not (home / "pipelines" / f"{argv[0]}.yaml").exists() and not pathlib.Path(argv[0]).exists():
    errors = [{"code": "CW101", "message": f"there is no pipeline {argv[0]}", "help": "there is op"}]
else:
    out.mkdir()
    (out / "records.jsonl").write_text((home / "stages" / "records").read_text().replace("HOME", str(home)))
print(json.dumps({"ok": not errors, "errors": errors}))
sys.exit(2 if errors else 0)
'''


def at(ms, **more):
    record = replace(FULL, timing=Timing(ms, 0.99 * ms, 1.01 * ms, 50, 0.5), **more)
    return replace(record, what=replace(record.what, source=Source("pipelines/op.yaml", 5)))


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a revision per time; its last one has one pipeline more."""
    root = tmp_path / "checkout"
    for part in (*trees.PARTS, "runner/commands"):
        (root / part).mkdir(parents=True)
        (root / part / "kept").touch()
    for name in ("__init__.py", "commands/bench.py"):
        (root / "runner" / name).touch()
    (root / "runner" / "__main__.py").write_text(BENCH.replace("LOG", repr(str(tmp_path / "log"))))
    git(tmp_path, "init", "-q", str(root))
    for name, ms in (("old", 1.0), ("slow", 1.5)):
        (root / "pipelines" / f"{name}.yaml").touch()
        (root / "stages" / "records").write_text(line(at(ms)))
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"{name} it is")
        git(root, "tag", name)
    monkeypatch.setattr(trees, "ROOT", root.resolve())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path(tempfile.tempdir).mkdir()
    return root


@pytest.fixture
def compare(checkout, capsys, monkeypatch):
    """(exit code, stdout, stderr) of a command line in the checkout; of what it makes nothing is left."""
    monkeypatch.chdir(checkout)

    def run(*argv):
        code = main(["compare", *argv])
        done = subprocess.run(["git", "status", "--porcelain"], cwd=checkout, capture_output=True, text=True)
        assert not done.stdout and not list(Path(tempfile.tempdir).glob("chunkwise*"))
        return (code, *capsys.readouterr())

    return run


def test_a_slower_revision_is_found_and_both_hashes_are_said(compare, checkout, tmp_path):
    code, out, err = compare("old", "slow", "--pipe", "old", "--axes", "T=64", "--backward", "--fail-above", "5")
    old, slow = (trees.git("rev-parse", "--short", name) for name in ("old", "slow"))
    assert code == 1 and f"- {old} (old)  old it is\n+ {slow} (slow)  slow it is" in out
    assert f"{old} ms" in out and f"{slow} ms" in out and " slower" in out
    assert f"is slower by 50.0 %, with a noise of 0.7 %: {old} 1 ms, {slow} 1.5 ms" in err
    assert f"{old}, round 3 of 3: [1/1] op: time scan" in err
    options = "old --axes T=64 --backward"
    turns = [("before", ""), ("after", ""), *[(side, " --no-gate") for side in ("after", "before", "before", "after")]]
    assert (tmp_path / "log").read_text().splitlines() == [f"{side} {options}{more}" for side, more in turns]


def test_without_a_second_revision_it_is_the_working_tree(compare, checkout):
    code, out, _ = compare("slow", "--pipe", "slow", "--rounds", "1", "--json")
    found = json.loads(out)
    assert code == 0 and [each["verdict"] for each in found["rows"]] == ["same"]
    assert [each["revision"] for each in found["revisions"]] == ["slow", None]
    assert found["revisions"][0]["hash"] == found["revisions"][1]["hash"] and found["rounds"] == 1


def test_paths_in_the_checkout_are_those_of_each_tree(checkout, tmp_path, monkeypatch):
    monkeypatch.chdir(checkout)
    (tmp_path / "mine.yaml").touch()
    tree = trees.tree_of("old", tmp_path / "tree")
    assert tree.own("pipelines/old.yaml") == str(tree.home / "pipelines" / "old.yaml")
    assert tree.own("old") == "old" and tree.own("../mine.yaml") == str((tmp_path / "mine.yaml").resolve())
    assert tree.shown(str(tree.home / "pipelines" / "old.yaml")) == f"{tree.hash}:pipelines/old.yaml"
    assert not (tree.home / "pipelines" / "slow.yaml").exists() and (tree.home / "pipelines" / "old.yaml").exists()


@pytest.mark.parametrize("argv, code, words", [
    (["old", "slow", "--pipe", "slow"], "CW101", "(old): there is no pipeline slow"),
    (["nope", "slow", "--pipe", "old"], "CW601", "there is no revision 'nope'"),
    (["old", "slow"], "CW601", "nothing says what to measure"),
    (["old", "slow", "--axes", "T=4"], "CW601", "--axes has no effect without --pipe"),
    (["old", "--rounds", "2"], "CW601", "--rounds has no effect without --pipe"),
    (["old", "slow", "--pipe", "old", "--records", "x"], "CW601", "--records has no effect beside --pipe"),
    (["old", "slow", "--pipe", "old", "--rounds", "0"], "CW601", "no number from 1 to 50"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(compare, argv, code, words):
    exit, out, err = compare(*argv)
    assert exit == 2 and f"error[{code}]" in err and words in err and not out


def test_outside_a_checkout_there_are_no_revisions(compare, tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "ROOT", tmp_path)
    code, _, err = compare("old", "slow", "--pipe", "old")
    assert code == 2 and "error[CW601]" in err and "is no git checkout" in err


def test_a_bench_that_dies_is_said_with_its_last_words(compare, checkout):
    (checkout / "runner" / "__main__.py").write_text("import sys\nsys.exit('no such thing')\n")
    git(checkout, "commit", "-aqm", "dies")
    code, _, err = compare("HEAD", "old", "--pipe", "old")
    assert code == 4 and "its bench ended with 1: no such thing" in err


def test_a_tree_before_bench_is_said(compare, checkout):
    git(checkout, "rm", "-q", "runner/commands/bench.py")
    git(checkout, "commit", "-qm", "before bench")
    code, _, err = compare("HEAD", "old", "--pipe", "old")
    assert code == 2 and "(HEAD) has no bench" in err


def test_rounds_that_disagree_are_noise():
    """Three rounds, each steady in itself: what lies between them counts."""
    (found,) = over_rounds([[at(1.0)], [at(1.2)], [at(1.1)]])
    assert found.timing.median_ms == 1.1 and found.timing.noise_pct == pytest.approx(100 * 0.1 / 1.1)
    assert found.timing.runs == 150
    lost = replace(at(1.0), timing=None, why="wrong")
    assert over_rounds([[lost], [at(1.0)]]) == [lost]
