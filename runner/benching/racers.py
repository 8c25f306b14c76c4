"""Who runs in the race of whole ops: ours, and each peer that can; the others with the reason why not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ..planning.execute import on_device
from ..reporting.clocks import Run, Timing, seconds
from .case import Case, InputSet
from .peers import Inapplicable, find_peer
from .record import Error
from .truth import Truth, error_against, left_out
from .whole_op import Forward, run_once, turns

GROSS = 0.1
"""A relative error above this is no rounding: the peer computes something else, and its time says nothing."""
FAILURES = (Exception, SystemExit)
"""What somebody else's code may raise: a row, not ours to stop at."""


@dataclass(frozen=True)
class Racer:
    """run: None where it does not race, and why says why. first_ms: of its first call, with compilation and tuning.
    error: against the definition. ran: what was called and launched. notes: for the reader of its row."""

    implementation: str
    run: Run | None
    first_ms: float | None = None
    error: Error | None = None
    ran: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    def after(self, timing: Timing | None) -> tuple["Racer", Timing | None]:
        """After the race: a peer that failed in the middle of it has no time."""
        if timing is None or not isinstance(self.run, Guarded) or not self.run.why:
            return self, timing
        return replace(self, run=None, why=self.run.why), None


class Guarded:
    """A peer's run: what it raises in the middle of a race ends its part, not the race."""

    why = ""

    def __init__(self, run: Run):
        self.run = run

    def __call__(self, number: int) -> object:
        try:
            return None if self.why else self.run(number)
        except FAILURES as error:
            self.why = f"failed: {first_line(error)}"


def peer_racer(name: str, case: Case, sets: Sequence[InputSet], truth: Truth | None) -> Racer:
    """Whatever the peer raises is its reason not to race. It runs with the case's device as the current one: not every
    peer switches to that of its tensors."""
    with on_device(case.device):
        return prepared(name, case, sets, truth)


def prepared(name: str, case: Case, sets: Sequence[InputSet], truth: Truth | None) -> Racer:
    implementation = name
    try:
        peer = find_peer(name, case)
        implementation = peer.implementation
        first_ms = first_call_ms(peer.forward, sets[0], case.device)
        got = run_once(peer.forward, truth.given) if truth else {}
        error = error_against(truth, got) if truth else None
        missing = left_out(truth, got) if truth else []
        run = turns(peer.forward, sets)
        ran = (peer.function, *launched(lambda: run(0), case.device))
    except Inapplicable as reason:
        return Racer(implementation, None, why=str(reason))
    except FAILURES as error:
        return Racer(implementation, None, why=f"failed: {first_line(error)}")
    if error and not error.rel_l2_err < GROSS:
        why = f"computes something else: {error.value} is off by {error.rel_l2_err:.1e} from the {error.against}"
        return Racer(implementation, None, first_ms, error, ran, why)
    notes = (f"{implementation} gives no {', '.join(missing)}: its time is for less",) if missing else ()
    return Racer(implementation, Guarded(run), first_ms, error, ran, notes=notes)


def first_call_ms(forward: Forward, given: InputSet, device: torch.device) -> float:
    def call():
        run_once(forward, given)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return 1e3 * seconds(call)


def launched(run: Callable[[], object], device: torch.device) -> tuple[str, ...]:
    """Names of the kernels that a run launches, each once, as the profiler sees them; nothing on a CPU."""
    if device.type != "cuda":
        return ()
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize(device)
    return tuple(dict.fromkeys(each.name for each in profiled.events() if each.device_type == DeviceType.CUDA))


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
