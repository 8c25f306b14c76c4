"""``verify``: is the pipeline right here, stage by stage and as a whole?"""

from dataclasses import replace

from ..benching.peers import names
from ..reporting.outcome import Outcome, Progress
from ..verification.generate import CASES
from ..verification.report_attribution import attribution_lines, attribution_table
from ..verification.report_attribution import document as attribution_document
from ..verification.report_verify import document, verify_table
from ..verification.verify import verify
from ._bench_cases import left_out, peers
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
    parser.add_argument("--without", metavar="NAME,...", help="optional inputs and outputs to leave out")
    parser.add_argument("--vs", metavar="sdpa,flex", help=f"of {', '.join(names())}: beside ours, on the same tensors, "
                        "against the same definition; they decide nothing")  # fmt: skip
    help = "swap one stage at a time for its float64 reference and say whose error it is"
    parser.add_argument("--attribute", action="store_true", help=help)


def execute(args) -> Outcome:
    what, vs, progress = subject(args), peers(args.vs), Progress()
    absent = left_out(args.without, what.op)
    what = replace(what, inputs={name: None if name in absent else x for name, x in what.inputs.items()})
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
        outputs=[name for name in what.op.spec.outputs if name not in absent],
        vs=vs,
        progress=progress,
    )
    progress.done()
    notes = [*what.notes, *result.notes]
    table = [*(f"note: {note}" for note in notes), *probe_lines(probed), verify_table(result)]
    report = {**document(result), **probe_document(probed), "notes": notes}
    if args.attribute:
        table += [attribution_table(result.attributions), *attribution_lines(result.attributions)]
        report["attribution"] = attribution_document(result.attributions)
    errors = [result.failure] if result.failure else []
    return Outcome(report, table, errors, exit=0 if result.ok else 1)
