"""The YAML language server that editors use, in a process of its own: JSON-RPC over its stdin and stdout."""

import json
import queue
import subprocess
import threading
from pathlib import Path

from support.npm import NODE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "editor"
SERVER = FOLDER / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
ANSWER_TIMEOUT_S = 20


class LanguageServer:
    """One server over one folder. settings: as an editor's settings.json has them, dotted keys at the top."""

    def __init__(self, settings: dict, root: Path = ROOT):
        self.settings, self.count = settings, 0
        self.answers: dict[int, queue.Queue] = {}
        self.diagnostics: dict[str, queue.Queue] = {}
        self.process = subprocess.Popen([NODE, SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self.listen, daemon=True).start()
        folder = {"uri": root.as_uri(), "name": root.name}
        capabilities = {
            "workspace": {"configuration": True, "workspaceFolders": True},
            "textDocument": {"completion": {"completionItem": {"documentationFormat": ["markdown"]}}},
        }
        self.ask(
            "initialize",
            {"processId": None, "rootUri": root.as_uri(), "workspaceFolders": [folder], "capabilities": capabilities},
        )
        self.tell("initialized", {})
        self.tell("workspace/didChangeConfiguration", {"settings": {}})

    def close(self) -> None:
        self.ask("shutdown", None)
        self.tell("exit", None)
        self.process.wait(timeout=ANSWER_TIMEOUT_S)

    def open(self, path: Path, text: str) -> list[dict]:
        """Show the server a text under a path; what it has to say of it."""
        uri = path.as_uri()
        waiting = self.diagnostics[uri] = queue.Queue()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return waiting.get(timeout=ANSWER_TIMEOUT_S)

    def at(self, request: str, path: Path, line: int, column: int):
        """completion or hover at a place; line and column from 1."""
        place = {"line": line - 1, "character": column - 1}
        return self.ask(f"textDocument/{request}", {"textDocument": {"uri": path.as_uri()}, "position": place})

    def ask(self, method: str, params):
        self.count += 1
        waiting = self.answers[self.count] = queue.Queue()
        self.send({"id": self.count, "method": method, "params": params})
        answer = waiting.get(timeout=ANSWER_TIMEOUT_S)
        assert "error" not in answer, answer
        return answer["result"]

    def tell(self, method: str, params) -> None:
        self.send({"method": method, "params": params})

    def send(self, message: dict) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        self.process.stdin.flush()

    def listen(self) -> None:
        while message := read_message(self.process.stdout):
            if message.get("method") == "workspace/configuration":
                wanted = [section(self.settings, item.get("section", "")) for item in message["params"]["items"]]
                self.send({"id": message["id"], "result": wanted})
            elif message.get("method") == "textDocument/publishDiagnostics":
                uri = message["params"]["uri"]
                if uri in self.diagnostics:
                    self.diagnostics[uri].put(message["params"]["diagnostics"])
            elif "method" in message and "id" in message:
                self.send({"id": message["id"], "result": None})
            elif "id" in message:
                self.answers[message["id"]].put(message)


def read_message(stream) -> dict | None:
    """The next message, None at the end of the stream."""
    length = 0
    while (line := stream.readline()).strip():
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(stream.read(length)) if length else None


def section(settings: dict, name: str) -> dict | None:
    """What settings.json says of a section: ``yaml`` of {"yaml.hover": true} is {"hover": true}."""
    if name in settings:
        return settings[name]
    found: dict = {}
    for key, value in settings.items():
        if key.startswith(f"{name}."):
            *above, last = key.removeprefix(f"{name}.").split(".")
            inner = found
            for part in above:
                inner = inner.setdefault(part, {})
            inner[last] = value
    return found or None
