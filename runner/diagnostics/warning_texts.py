"""What the codes of warnings mean: why, example and fix of each, for explanations.py."""

from . import codes

# fmt: off
WARNINGS = {
    codes.UNREAD_OUTPUT: (
        "A warning: the stage is used, and one of its outputs is read by no edge and named by no output of the file. "
        "It costs nothing, since it is neither computed nor stored; but where a stage corrects its values (v_new) and "
        "the next one reads the plain ones, the op is another one than was meant. Outputs that the contract calls "
        "optional do not count, and neither do states at a sequence's end, which only a next call would read.",
        "scan: {use: chunk_delta_h, in: {...}}\nout: {use: chunk_o, in: {v: v, h: scan.h}}      # and not scan.v_new",
        "Bind the output where it belongs, name it in outputs, or leave it: the file is right as it is.",
    ),
    codes.GRADIENT_FALLBACK: (
        "A warning: the stage's file has no vjp, so that its gradient is PyTorch's autograd through the reference, on "
        "every back end. It is right, runs no kernel, and keeps the stage's inputs and whatever autograd keeps.",
        "act: {use: silu, in: {x: k}}               # silu.py has a reference and no vjp",
        "Write a vjp in the stage's file, and kernels for it (VJP_LAUNCHERS) where time matters; or leave it.",
    ),
    codes.UNFIXED_AXIS: (
        "A warning: a value inside the pipeline has an axis that no input of the call has, that axes: does not fix and "
        "that does not follow from others (N from B, NT from T and C). A call then has no number for it. It may be an "
        "axis that only an optional input has.",
        "inputs: {k: B L H K, v: B L H V}           # chunk states are B NT H K V, and NT follows from T",
        "Name the axis in an input (T for tokens, B for batch), or fix its size in axes:.",
    ),
    codes.LONG_KEYS: (
        "A warning: a delta rule multiplies its state by I - beta k k^T, which has the eigenvalue 1 - beta |k|^2 along "
        "k. Past |k| = sqrt(2 / beta) that is below -1, and the state grows at every token that comes near k again: "
        "random keys of 64 numbers have the length 8, and overflow within a chunk or two. Nothing says that these keys "
        "are no longer than 1, so that tests, and verify, are given longer ones.",
        "inputs: {k: B T H K}\nstages: {kkt: {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta}}, ...}",
        "Read them through the stage l2norm (in a definition: k / sqrt(sum(k * k, axis=K) + 1e-6)), or declare them "
        "where: unit_norm(K), if callers see to that.",
    ),
}
