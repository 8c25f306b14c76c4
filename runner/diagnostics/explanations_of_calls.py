"""What CW601 to CW901 mean: commands, calls, the machine, results. See explanations.py."""

from . import codes

# fmt: off
OF_CALLS = {
    codes.USAGE: (
        "The command line does not say what to do, or two of its parts exclude each other.",
        "chunkwise run",
        "`chunkwise COMMAND --help` shows what it takes.",
    ),
    codes.BAD_AXES: (
        "--axes takes names and sizes: NAME=SIZE, with commas between; each name an axis of the pipeline.",
        "chunkwise run gated_delta --axes T:4096",
        "Write --axes T=4096,H=16.",
    ),
    codes.BAD_SEQLENS: (
        "cu_seqlens starts at 0, never falls, and ends at T or before; it is int32 or int64, on the tensors' device, "
        "and goes with B = 1. --seqlens takes lengths from 0 with commas between.",
        "op(..., cu_seqlens=torch.tensor([0, 12, 8, 16]))",
        "Pass the running sum of the lengths, with a 0 in front.",
    ),
    codes.TENSOR: (
        "A tensor of the call is missing, unknown, on another device, or has another dtype, rank or size than the "
        "pipeline's inputs say. Or it is written over, and cannot be: another input shares its memory, or two "
        "sequences name one row. Rows named on a GPU are not read back: there one outside of the states counts as -1, "
        "and what two sequences leave in one row is undefined (run --probe looks).",
        "op(q=q, k=k.half(), ...)                   # q is bfloat16",
        "Pass what the message names; nothing is cast or moved in silence.",
    ),
    codes.SIZE: (
        "The back end that was asked for has no implementation for these sizes, and says why.",
        "chunkwise run gated_delta --axes K=512 --backend triton",
        "Choose a supported size, or --backend reference.",
    ),
    codes.UNKNOWN_WORKLOAD: (
        "No workload has this name.",
        "chunkwise run gated_delta --workload huge",
        "The help names the nearest; --axes gives sizes of your own.",
    ),
    codes.INPUTS_FILE: (
        "The file of --inputs cannot be read as safetensors, lacks a tensor that the pipeline requires, or holds one "
        "that the pipeline does not have.",
        "chunkwise run gated_delta --inputs capture.pt",
        "Write the tensors under the pipeline's input names with safetensors.torch.save_file.",
    ),
    codes.UNKNOWN_CODE: (
        "chunkwise explain was asked for a code that does not exist.",
        "chunkwise explain CW999",
        "The code stands in brackets after the word error, as in error[CW304].",
    ),
    codes.DOUBLE_BACKWARD: (
        "The backward pass of a pipeline is derived, and it has no derivative of its own.",
        "torch.autograd.grad(loss, k, create_graph=True)",
        "Leave out create_graph; for second derivatives, differentiate the definition or the references.",
    ),
    codes.RUN_REPORT: (
        "--reports takes the report.json that run writes, one for each of the two pipelines, in their order.",
        "chunkwise diff gla kda --reports capture.safetensors capture.safetensors",
        "Name the reports that chunkwise run wrote, out/PIPE/report.json, that of the first pipeline first.",
    ),
    codes.TRANSFORM: (
        "The op was called under a transform of torch.func, or in forward-mode autograd. These look into a function, "
        "and kernels cannot be looked into; a batch is an axis of the op already.",
        "torch.func.grad(lambda q: op(q=q, k=k, v=v).o.sum())(q)",
        "Differentiate with torch.autograd.grad or backward(). In place of torch.vmap, fold the mapped axis into B.",
    ),
    codes.RECORDS: (
        "compare takes files of records, as bench writes them: one JSON object a line, never edited, for the id of a "
        "record is the hash of its content.",
        "chunkwise compare capture.safetensors capture.safetensors",
        "Name the records.jsonl of two runs of chunkwise bench, or their folders.",
    ),
    codes.NOT_CUT: (
        "Context parallel cuts sequences across ranks, op.in_segments into segments that run one after the other. What "
        "crosses a cut is a scan's state, through the map that the scan's file names by SEGMENT; a stage that holds "
        "something of each sequence and names none cannot be cut. "
        "Attention needs the keys of all ranks, along the axis that its file names by GATHERED. A pipeline without "
        "either cannot be cut.",
        "chunkwise run gla_serial --context-parallel      # the teaching form: its scan names no segment stage",
        "Cut a pipeline of the chunked form, with the stages before it outside; or write the stage that gives the map.",
    ),
    codes.RANKS_DIFFER: (
        "The ranks of a process group called for different things: another pipeline, other lengths, rows, dtypes, "
        "params or gradients, or another group; or one of them refused its call. It is asked for before the first "
        "launch of every call.",
        "op(**shards, seqlens=[37, 51, 40] if rank else [37, 51])",
        "Call the same op on every rank of the group, with the lengths of all sequences.",
    ),
    codes.NO_GPU: (
        "What was asked for needs a GPU, and none is there or torch cannot use it.",
        "chunkwise run gated_delta --backend triton      # on a laptop",
        "`chunkwise doctor` shows what was found. --backend reference and --backend interpret need no GPU.",
    ),
    codes.BACKEND: (
        "The back end needs a package that is not installed or not usable here: Triton has no wheel for macOS and "
        "Windows.",
        "chunkwise verify gated_delta --backend interpret      # without triton",
        "Install it, or use --backend reference. `chunkwise doctor` lists versions.",
    ),
    codes.OUT_OF_MEMORY: (
        "The device has no memory left for the tensors of this call.",
        "chunkwise run gated_delta --axes B=64,T=131072",
        "Choose smaller sizes or a larger device.",
    ),
    codes.OUTPUT: (
        "The place where the result goes takes nothing more: its disk is full, or stdout leads to one that is.",
        "chunkwise list > /dev/full",
        "Make room, or name another place: --out DIR, or -o FILE for export.",
    ),
    codes.RANK_LOST: (
        "A rank waited for the others of its process group, and one of them has died, has raised, or did not come "
        "within the group's timeout. What all ranks hold together is lost with it.",
        "torchrun --nproc-per-node 2 train.py      # and one of the two runs out of memory",
        "What the other rank printed last says why. Where it is only slow, pass init_process_group a longer timeout. "
        "Where none is gone, look for a call, a backward pass or a new op that one rank makes and another does not.",
    ),
    codes.OUT_OF_BUDGET: (
        "A result differs from the float64 definition by more than rounding explains. Budgets are derived, not tuned; "
        "the message names the first stage that is out.",
        "chunkwise verify gated_delta",
        "A stage is named: its kernel, its vjp or its reference is wrong, whichever the place shows, or a compiler "
        "miscompiles it (`chunkwise doctor`). Only the op is named: graph and definition are two different ops; "
        "look for swapped edges, a missing factor, step lines in another order.",
    ),
    codes.VALUE_OUT_OF_LAW: (
        "A tensor holds a value that its law excludes; the message says which and where. verify holds what each stage "
        "gives against the stage's promises, --probe every value of one run, inputs first.",
        "chunkwise run gated_delta --inputs capture.safetensors --probe      # a g above 0",
        "Correct the tensor or the stage, or the law if the op does not need it.",
    ),
    codes.NOT_FINITE: (
        "A result holds nan or inf where the definition is finite.",
        "chunkwise verify gated_delta --dtype fp16",
        "The message names the first stage that gave one; `run --until STAGE` stops there.",
    ),
    codes.LAUNCH_FAILED: (
        "A kernel did not compile or did not run on this device.",
        "chunkwise run gated_delta --backend triton",
        "The message holds the compiler's or driver's words; `chunkwise doctor` knows bad pairs of versions.",
    ),
    codes.NO_STAGES: (
        "`chunkwise new` searched all that the stages can make of a definition's inputs, and an output, a state, or a "
        "value that the recurrence reads is not among it. The message names the first that is out of reach, and the "
        "contract of a stage that would give it.",
        "chunkwise new mine --from recurrence.yaml      # o = scale * (q @ S) stands before the lines that write S",
        "--stub writes that stage, with a reference made of the definition, and a pipeline that runs at once.",
    ),
    codes.ABOVE_CEILING: (
        "By its contract a stage did more operations, or moved more bytes, than the device can in the time that it "
        "took. The time was measured; so the contract counts too much, and every figure made of it is wrong.",
        'flops="2 * B * T * T * H * K"               # of a stage that looks at one chunk at a time',
        "Correct flops in the stage's contract, or its ports.",
    ),
    codes.REGRESSION: (
        "compare found something slower by more than --fail-above allows: the ranges in which most runs lie do not "
        "overlap, and the medians are further apart than their noise explains.",
        "chunkwise compare before/records.jsonl after/records.jsonl --fail-above 5",
        "Look at the rows that say slower. On a machine that others use, measure both anew, one right after the other.",
    ),
    codes.INTERNAL: (
        "chunkwise itself is at fault: this should not happen, whatever the input.",
        "error[CW901]: ...",
        "Please report it with the command, the file and the text below the message.",
    ),
}
