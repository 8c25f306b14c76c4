"""What each error code means, with an example and the way out: the text of ``chunkwise explain CODE``."""

from dataclasses import dataclass
from textwrap import fill

from . import codes

WIDTH = 100


@dataclass(frozen=True)
class Explanation:
    """why: what is wrong and why it is refused. example: what brings it about. fix: what to do."""

    why: str
    example: str
    fix: str


def explain(code: str) -> str:
    """The explanation of a code as text."""
    known, text = codes.CODES[code], EXPLANATIONS[code]
    example = "\n".join(f"    {line}" for line in text.example.splitlines())
    why, fix = fill(text.why, WIDTH), text.fix if "\n" in text.fix else fill(text.fix, WIDTH)
    return f"{code}: {known.title} (exit code {known.exit})\n\n{why}\n\n{example}\n\n{fix}"


# fmt: off
EXPLANATIONS = {code: Explanation(*texts) for code, texts in {
    codes.NO_FILE: (
        "The path does not lead to a file that can be read.",
        "chunkwise check pipelines/gated_dleta.yaml",
        "Correct the path. A name without a folder and without .yaml means a pipeline that ships: `chunkwise list`.",
    ),
    codes.ENCODING: (
        "A pipeline is a text in UTF-8. It holds no control character, no text direction override and no line break "
        "that YAML 1.2 does not know, raw or as an escape: they read differently from what they do.",
        r'summary: "gated\0delta"',
        "Save the file as UTF-8 and remove the character at the place shown.",
    ),
    codes.YAML_SYNTAX: (
        "The text is no YAML, or not the YAML that was meant. In { } and [ ] a comma ends an entry even inside "
        "parentheses, so text that holds a comma is quoted there. Tabs do not indent. A file holds one document.",
        "definition: {step: [S = S + outer(k, v)]}",
        'Quote the text, or write one item a line:\n\n    step:\n      - S = S + outer(k, v)',
    ),
    codes.DUPLICATE_KEY: (
        "A key stands twice in one mapping. Most YAML readers keep the last one in silence; here it is an error.",
        "axes: {C: 64, C: 128}",
        "Remove one of the two.",
    ),
    codes.YAML_FEATURE: (
        "Tags (!!python/object, !!str) and merge keys (<<) are not read: a file from anywhere must be safe to load, "
        "and each thing is written in one way. Anchors and aliases work.",
        "k: !!str 3",
        "Quote a value to make it a text. Write merged keys out, or alias a whole value.",
    ),
    codes.LIMIT: (
        "Files are limited to 256 KiB, 32 levels, 10,000 values with aliases written out, and integers of 40 digits, "
        "so that a hostile file costs no more than a moment.",
        "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]      # and so on",
        "Split the pipeline, or write fewer aliases of aliases.",
    ),
    codes.UNKNOWN_KEY: (
        "The key means nothing at this place. Keys that are not known are never ignored.",
        "  out: {uses: chunk_o, in: {q: q}}",
        "The help names the nearest key, or all of them.",
    ),
    codes.MISSING_KEY: (
        "A key that has no default is not there. A file has schema, name, inputs, stages and outputs; an input has a "
        "shape; a stage has use; a definition has step or dense; default: needs optional: true.",
        "  out: {in: {q: q}}",
        "Add the key that the help names.",
    ),
    codes.WRONG_KIND: (
        "A text stands where a mapping belongs, a list where a name belongs, and so on. Scalars follow YAML 1.2: "
        "only true and false are flags (yes and on are texts), and 017 is seventeen.",
        "axes: {C: sixty-four}",
        "Write the kind of value that the message names. Quotes make any value a text.",
    ),
    codes.BAD_NAME: (
        "Names of pipelines, inputs, stages, parameters and outputs become arguments and fields in Python: a letter, "
        "then letters, digits and _, at most 64 characters, and no word of Python. cu_seqlens is an argument of every "
        "pipeline already.",
        "inputs: {lambda: B T HV}",
        "Choose another name.",
    ),
    codes.SCHEMA_VERSION: (
        "The first key says which format the file follows. Within pipeline/v1 keys are only ever added, so every v1 "
        "file stays readable; another version is refused before anything else is read.",
        "schema: pipeline/v2",
        "Write schema: pipeline/v1, or use a build that reads the file's version.",
    ),
    codes.EMPTY: (
        "The file, a value or a collection that must hold something holds nothing.",
        "outputs: {}",
        "Fill it, or remove the key where it is optional.",
    ),
    codes.SHAPE_TEXT: (
        "A shape is up to eight axis names and sizes with spaces between, outermost first. Axes: B batch, T tokens, "
        "N sequences, H query and key heads, HV value heads, K and V widths, C chunk length, NT chunks.",
        "q: B, T, H, K",
        "Write q: B T H K.",
    ),
    codes.DTYPE_NAME: (
        "An input's dtype is io (the default: one dtype per pipeline, solved from the tensors), f32 (the accumulation "
        "dtype, float64 when io is float64) or int (int32 or int64).",
        "g: {shape: B T HV, dtype: float32}",
        "Write dtype: f32, or leave it out for io.",
    ),
    codes.UNIT_NAME: (
        "Units are a closed list, in stages/_units.py: what the numbers of an edge mean is part of its type.",
        "g: {shape: B T HV, dtype: f32, unit: log2}",
        "Choose a unit from that file; the help names the nearest.",
    ),
    codes.LAW_TEXT: (
        "Value laws are a closed list: <= x, >= x, > x, x..y, unit_norm(AXIS), non_increasing(AXIS in chunk).",
        "beta: {shape: B T HV, where: between 0 and 1}",
        "Write where: 0..1. In { } quote a law that begins with < or > or holds a comma.",
    ),
    codes.NAME_TWICE: (
        "An expression sees inputs, parameters and axes under one set of names, and an edge sees inputs and stages; "
        "a name that could mean two of them is refused.",
        "inputs: {beta: B T HV}\nstages: {beta: {use: sigmoid, in: {x: beta}}}",
        "Rename one of the two.",
    ),
    codes.BAD_USE: (
        "use is the plain name of a stage, never a path and never a module: loading a pipeline runs no code that the "
        "file names.",
        "kkt: {use: ./my_kkt.py, in: {k: k}}",
        "Put the file in a folder, pass --stages DIR, and write use: my_kkt.",
    ),
    codes.BAD_SOURCE: (
        "An edge comes from a pipeline input, written by its name, or from a stage's output, written stage.port.",
        "in: {x: cumsum.y.0}",
        "Write x: cumsum.y, or x: g.",
    ),
    codes.KEYS_CLASH: (
        "Two keys exclude each other: a definition is given token by token (step) or over whole tensors (dense).",
        "definition: {step: [...], dense: [...]}",
        "Keep one of the two.",
    ),
    codes.UNKNOWN_STAGE: (
        "No stage has this name. A stage is a file in stages/, in a folder given by --stages, or in an installed "
        "package with the entry point chunkwise.stages.",
        "scan: {use: chunk_delta, in: {k: k}}",
        "`chunkwise list` names every stage; the help names the nearest.",
    ),
    codes.UNKNOWN_PORT: (
        "The stage has no port of this name. Edges are bound by port name, never by position.",
        "cumsum: {use: chunk_local_cumsum, in: {g: g}}",
        "`chunkwise show STAGE` lists its ports. Here: in: {x: g}.",
    ),
    codes.UNKNOWN_SOURCE: (
        "The edge comes from something that is neither an input nor an output of a stage of this file.",
        "in: {g: cumsum.z}",
        "The help names the nearest.",
    ),
    codes.MISSING_INPUT: (
        "A required port of the stage is not bound. Only ports marked optional may stay open.",
        "kkt: {use: chunk_scaled_dot_kkt, in: {k: k}}",
        "Bind it: in: {k: k, beta: beta}.",
    ),
    codes.UNUSED_STAGE: (
        "Nothing uses what the stage gives, so it would never run. That is mostly an edge that goes elsewhere by "
        "mistake.",
        "stages: {cumsum: {use: chunk_local_cumsum, in: {x: g}}, out: {use: chunk_o, in: {g: g}}}",
        "Use its output, or remove the stage.",
    ),
    codes.CYCLE: (
        "Stages wait for each other in a circle; the message prints the path.",
        "a: {use: l2norm, in: {x: b.y}}\nb: {use: l2norm, in: {x: a.y}}",
        "Cut the circle. A recurrence over chunks lives inside one stage.",
    ),
    codes.UNKNOWN_PARAM: (
        "The stage has no parameter of this name, or the pipeline has none.",
        "out: {use: chunk_o, in: {q: q}, with: {scle: scale}}",
        "`chunkwise show STAGE` lists its parameters.",
    ),
    codes.MISSING_PARAM: (
        "A parameter of the stage has no default and is not bound by with.",
        "out: {use: chunk_o, in: {q: q, k: k}}",
        "Bind it: with: {scale: scale}.",
    ),
    codes.UNUSED_INPUT: (
        "No stage reads the input, so a call would ask for a tensor that has no effect.",
        "inputs: {q: B T H K, mask: B T}",
        "Use it, or remove it.",
    ),
    codes.NO_GRADIENT: (
        "A gradient would have to leave a stage at an input that its vjp says nothing of; leaving it out would make "
        "the whole gradient wrong. Fixed slopes (g_gamma) are such inputs.",
        "o.sum().backward() with slopes.requires_grad",
        "Detach the tensor, or write that gradient in the stage's vjp.",
    ),
    codes.SHAPE: (
        "The shape that arrives does not fit the port: another number of axes, or an axis that is two sizes at once. "
        "The notes show which edge fixed the axis first.",
        "out: {use: chunk_o, in: {v: k}}           # k is B T H K, the port wants B T HV V",
        "Bind the value that the port means, or insert the stage that converts.",
    ),
    codes.DTYPE: (
        "The dtype that arrives is not the port's. io ports share one dtype per pipeline; f32 ports take float32.",
        "wy: {use: recompute_w_u, in: {Ai: kkt.A}}",
        "Bind a value of the right dtype, or declare the input with dtype: f32.",
    ),
    codes.LAYOUT: (
        "The axes are the port's and stand in another order. Sizes can agree by chance, so order is checked by name: "
        "tokens are B T H *, chunk states B NT HV K V, states N HV K V.",
        "initial_state: {shape: N HV V K, dtype: f32}",
        "Declare the axes in the order of the message and transpose outside.",
    ),
    codes.UNIT: (
        "Shape and dtype fit, and the numbers mean something else: natural log against base 2, per token against "
        "summed in the chunk, gated against ungated. Nothing else would notice; results would be wrong in silence.",
        "out: {use: chunk_o, in: {g: g}}           # g is log_decay/ln/token, the port wants the chunk sum in log2",
        "Insert the stage that the help names, here cumsum: {use: chunk_local_cumsum, in: {x: g}}, and bind cumsum.y.",
    ),
    codes.LAW: (
        "The stage is right only for values that keep its law, and the inputs' laws do not imply it.",
        "inputs: {g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token}}      # nothing says g <= 0",
        'State the law on the input (where: "<= 0"), if it holds: --probe checks it on real tensors.',
    ),
    codes.CONSTRAINT: (
        "A relation between sizes that a stage or the pipeline requires does not hold.",
        "chunkwise check gated_delta --axes H=3,HV=4      # HV % H == 0 is required",
        "Choose other sizes.",
    ),
    codes.AXIS_SIZE: (
        "Nothing gives the axis a size: no tensor has it, and neither axes: nor --axes names it.",
        "inputs: {x: B T HV}                       # and no C, which the stage needs",
        "Add axes: {C: 64} to the file, or pass --axes C=64.",
    ),
    codes.EXPRESSION: (
        "The text does not follow the expression grammar: numbers, names, + - * / ** %, @, comparisons, & and calls "
        "of the listed functions. Nothing is evaluated as Python.",
        "- o = scale * (q @ S",
        "Correct it at the place shown.",
    ),
    codes.UNKNOWN_NAME: (
        "The expression names something that is no input, parameter, axis, state, earlier line or function.",
        "- o = scale * (q @ s)                     # the state is called S",
        "The help names the nearest.",
    ),
    codes.EXPRESSION_LIMIT: (
        "Expressions are limited in length, depth and exponents, so that a hostile file costs no more than a moment.",
        "params: {scale: 9 ** 9 ** 9}",
        "Write the number, or split the line into several.",
    ),
    codes.DEFINITION: (
        "The definition does not fit itself or the pipeline: shapes that do not go together, a state that changes its "
        "shape, an output that no line gives.",
        "- S = S + outer(v, k)                     # S is K V, the product V K",
        "Correct the line shown.",
    ),
    codes.EXPRESSION_VALUE: (
        "The expression is well formed and has no finite value for these sizes: a division by 0, a root of a negative "
        "number, an overflow.",
        "params: {scale: 1 / (K - 64)}             # with K = 64",
        "Change the expression or the sizes.",
    ),
    codes.STAGE_BROKEN: (
        "Importing the stage file raised an exception; the place is the line of the file that led there. Stages "
        "import without triton and without a device: kernels are imported inside launch.",
        "import triton                             # at the top of a stage file, on macOS",
        "Correct the line. From outside the checkout: from chunkwise.stages._contract import Contract, Port.",
    ),
    codes.STAGE_CONTRACT: (
        "The file has no CONTRACT or no reference, or the contract is inconsistent: a name for two things, a presence "
        "variable without an optional input, no outputs.",
        'CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={})',
        "Complete the contract. A helper that is no stage has a file name that begins with _.",
    ),
    codes.STAGE_SIGNATURE: (
        "reference takes the contract's inputs by position, in order, and axes and params after *. launch takes "
        "inputs, outputs and scratch, then axes, params, seqs and config after *. vjp takes d_<output> and whichever "
        "inputs and outputs it needs, then axes, params and needs after *.",
        "def reference(k, g, beta, *, C): ...       # the contract says k, beta, g",
        "Name the parameters as the contract names the ports.",
    ),
    codes.STAGE_TWICE: (
        "Two files give a stage of one name. A stage from outside never shadows one that ships.",
        "chunkwise run gated_delta --stages my_stages      # my_stages/chunk_o.py",
        "Give the file a name of its own and write that in use.",
    ),
    codes.STAGE_FOLDER: (
        "--stages names something that is no folder.",
        "chunkwise list --stages my_stages/twice.py",
        "Pass the folder that holds the stage files.",
    ),
    codes.STAGE_FAILED: (
        "The reference or vjp of a stage from outside the checkout raised an exception, or gave something that its "
        "contract does not have: no mapping, an output too few, another shape. The place is in the stage file.",
        'return x * 2                              # in place of return {"y": x * 2}',
        "Correct the stage file. A reference gives every output of the contract by name, in the shape of its port.",
    ),
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
        "pipeline's inputs say.",
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
        "The file of --inputs cannot be read as safetensors, or lacks a tensor that the pipeline requires.",
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
    codes.OUT_OF_BUDGET: (
        "A result differs from the float64 definition by more than rounding explains. Budgets are derived, not tuned; "
        "the message names the first stage that is out.",
        "chunkwise verify gated_delta",
        "Look at that stage on this device: a wrong kernel, or a compiler that miscompiles it (`chunkwise doctor`).",
    ),
    codes.VALUE_OUT_OF_LAW: (
        "With --probe, a tensor holds a value that its law excludes; the message says which and where.",
        "chunkwise run gated_delta --inputs capture.safetensors --probe      # a g above 0",
        "Correct the tensor, or the law if the op does not need it.",
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
        "chunkwise new mine --from mine.yaml      # o = scale * (q @ S) stands before the lines that write S",
        "--stub writes that stage, with a reference made of the definition, and a pipeline that runs at once.",
    ),
    codes.INTERNAL: (
        "chunkwise itself is at fault: this should not happen, whatever the input.",
        "error[CW901]: ...",
        "Please report it with the command, the file and the text below the message.",
    ),
}.items()}
