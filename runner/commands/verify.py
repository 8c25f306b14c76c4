"""``verify``: is the pipeline right here, stage by stage and as a whole?"""

from ..reporting.outcome import Outcome, Progress
from ..verification.generate import CASES
from ..verification.report_attribution import attribution_lines, attribution_table
from ..verification.report_attribution import document as attribution_document
from ..verification.report_verify import document, verify_table
from ..verification.verify import verify
from ._options import backward_options, sizes_and_machine
from ._probe import probe_document, probe_failed, probe_lines, probed_values
from ._subject import subject

NAME = "verify"
HELP = "hold each stage against its float64 reference, then the op against its definition"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    sizes_and_machine(parser)
    backward_options(parser, "gradients too: every vjp, then the op's")
    parser.add_argument("--case", choices=CASES, default="typical", help="what the generated inputs are like")
    help = "swap one stage at a time for its float64 reference and say whose error it is"
    parser.add_argument("--attribute", action="store_true", help=help)


def execute(args) -> Outcome:
    what, progress = subject(args), Progress()
    probed = probed_values(what) if args.probe else None
    if probed and probed.found:
        return probe_failed(what, probed)
    result = verify(
        what.op,
        what.inputs,
        seqlens=what.seqlens,
        params=what.params,
        case=args.case,
        backward=args.backward,
        seed=args.seed,
        expected=what.expected,
        cotangents=what.cotangents,
        attribute=args.attribute,
        progress=progress,
    )
    progress.done()
    table = [*(f"note: {note}" for note in what.notes), *probe_lines(probed), verify_table(result)]
    report = {**document(result), **probe_document(probed), "notes": what.notes}
    if args.attribute:
        table += [attribution_table(result.attributions), *attribution_lines(result.attributions)]
        report["attribution"] = attribution_document(result.attributions)
    errors = [result.failure] if result.failure else []
    return Outcome(report, table, errors, exit=0 if result.ok else 1)
