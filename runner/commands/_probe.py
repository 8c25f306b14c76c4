"""What ``--probe`` does and says, for run and verify."""

from ..reporting.outcome import Outcome
from ..verification.probe import Probe, probe
from ._subject import CommandSubject


def probed_values(what: CommandSubject) -> Probe:
    return probe(what.op.bind({**what.inputs, **what.params}, seqlens=what.seqlens))


def probe_failed(what: CommandSubject, probed: Probe) -> Outcome:
    return Outcome.of_errors(probed.found, {"pipeline": what.op.spec.name, **probe_document(probed)})


def probe_document(probed: Probe | None) -> dict:
    """``probe`` of the JSON reports; nothing where nobody asked."""
    return {"probe": {"ok": not probed.found, "checked": list(probed.checked)}} if probed else {}


def probe_lines(probed: Probe | None) -> list[str]:
    return [f"probed: {', '.join(probed.checked) or 'no value'} keep to their laws"] if probed else []
