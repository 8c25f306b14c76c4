"""Ctrl-C in the process of the command line: 130 and one line, wherever the signal lands."""

import json
import signal
import subprocess
import sys

import pytest

import chunkwise.runner

HIT = """\
import os, signal, time

def hit():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)

"""
PLACES = {
    "an import": "hit()\n",
    "a class body": "class Named:\n    def __set_name__(self, owner, name):\n        hit()\n\n"
    "class Owner:\n    named = Named()\n",
    "a finalizer": "class Gone:\n    def __del__(self):\n        hit()\n\nGone()\n",
    "a weakref callback": "import weakref\n\nclass Gone:\n    pass\n\ngone = Gone()\n"
    "held = weakref.ref(gone, lambda ref: hit())\ndel gone\n",
    "a bare except": "try:\n    hit()\nexcept:\n    pass\n",
    "another error": "try:\n    hit()\nexcept KeyboardInterrupt as error:\n    raise ImportError('no') from error\n",
    "C code that waits": "import hashlib, threading\n"
    "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n",
}
"""What a module does that the command line imports: here in place of torch, which is the first heavy one."""

ENTRIES = {
    "-m": ["-m", "chunkwise.runner"],
    "the script": ["-c", "import sys; from chunkwise.runner.__main__ import main; sys.exit(main())"],
}


def ended(folder, entry, *argv, **how):
    """(exit code, stdout, stderr) of a process whose torch is the folder's torch.py."""
    words = [sys.executable, *ENTRIES[entry], *argv]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    try:
        out, err = process.communicate(timeout=25)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize("body", PLACES.values(), ids=PLACES)
def test_wherever_the_signal_lands(tmp_path, body):
    (tmp_path / "torch.py").write_text(HIT + body)
    assert ended(tmp_path, "-m", "list") == (130, "", "interrupted\n")


@pytest.mark.parametrize("entry", ENTRIES)
def test_both_ways_in_give_one_document(tmp_path, entry):
    (tmp_path / "torch.py").write_text(HIT + "hit()\n")
    code, out, err = ended(tmp_path, entry, "list", "--json")
    assert (code, err) == (130, "interrupted\n")
    assert json.loads(out) == {"ok": False, "interrupted": True, "errors": []}


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path):
    """As in nohup, or behind & in a script."""
    (tmp_path / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos._exit(7)\n")
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ended(tmp_path, "-m", "list") == (7, "", "")
    finally:
        signal.signal(signal.SIGINT, ignored)


def test_every_public_name_is_there_and_no_other():
    everything = {}
    exec("from chunkwise.runner import *", everything)
    names = set(chunkwise.runner.__all__)
    assert names <= everything.keys() and names <= set(dir(chunkwise.runner))
    assert chunkwise.runner.load is everything["load"]
    with pytest.raises(AttributeError, match="module 'chunkwise.runner' has no attribute 'lod'"):
        chunkwise.runner.lod  # noqa: B018


def test_a_library_that_is_imported_leaves_signals_alone():
    handler = signal.getsignal(signal.SIGINT)
    chunkwise.runner.load("simple_gla")
    assert signal.getsignal(signal.SIGINT) is handler


def test_what_must_not_be_left_behind_is_cleaned_up(tmp_path):
    """Where the signal ends the process inside the block; what happens there afterwards is no result."""
    clean = "from chunkwise.runner import interrupt\nfrom pathlib import Path\n"
    clean += f"with interrupt.cleaned_up(lambda: Path({str(tmp_path / 'left')!r}).unlink(True)):\n    "
    (tmp_path / "left").touch()
    (tmp_path / "torch.py").write_text(HIT + clean + "hit()\n")
    assert ended(tmp_path, "-m", "list") == (130, "", "interrupted\n")
    assert not (tmp_path / "left").exists()
    (tmp_path / "left").touch()
    (tmp_path / "torch.py").write_text(HIT + clean + "pass\nos._exit(7)\n")
    assert ended(tmp_path, "-m", "list") == (7, "", "") and not (tmp_path / "left").exists()


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_c_code_prints_is_no_part_of_the_result(tmp_path, entry):
    """In a process of its own, for the descriptor is the process's."""
    (tmp_path / "torch.py").write_text("import os\nos.write(1, b'noise ')\nos.system('echo more')\nos._exit(7)\n")
    assert ended(tmp_path, entry, "list", "--json") == (7, "", "noise more\n")
