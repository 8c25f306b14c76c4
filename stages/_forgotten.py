"""What a sequence has forgotten when it ends need not be scanned for the state that it leaves.

A chunk multiplies the state by 2^g_C; under the delta rule each of its tokens by I - beta k k^T too, which makes no
vector longer than by max(1, |1 - beta |k|^2|). So what is in the state when chunk c begins is multiplied, until the
sequence ends, by at most 2^L,

    L = sum over the chunks from c on of g_C + sum over their tokens of log2 max(1, |1 - beta |k|^2|)

A column of a finite float32 state is shorter than 2^(128 + 4), for K up to 256. Where L is at most FORGOTTEN, not
2^-156 is left of it, nothing beside float32's least number, 2^-149; the binary digits between are more than L loses by
rounding. The scan may begin with the last such c, from zeros. A cotangent goes the other way through the same chunks:
the same holds from the other end. How many chunks that spares is decided on the device, for each head; a nan in what L
is made of forgets nothing, one in a value is forgotten like any number.
"""

from ._contract import INT, Launch, Port
from ._tiles import padded

FORGOTTEN = -288
WINDOW = {"gates": 1 << 30, "keys": 64}
"""Chunks that are looked at: of gates one number each, of keys all, where it takes more of them than a scan would."""

SCRATCH = {"forgotten": Port("N HV", INT, doc="chunks of each sequence that it has forgotten when it ends")}


def forgotten_launch(g, g_gamma, b_end, k, beta, forgotten, *, K, C, seqs, reverse=False):
    """forgotten [N, HV], or with room for more. k, beta: under the delta rule."""
    from ..kernels.forgotten_chunks import forgotten_chunks_kernel

    HV = forgotten.shape[1]
    keys = beta is not None
    return Launch(
        forgotten_chunks_kernel,
        grid=(seqs.N * HV,),
        args=dict(
            g=g, g_gamma=g_gamma, b_end=b_end, k=k, beta=beta, forgotten=forgotten, cu_seqlens=seqs.cu_seqlens,
            chunk_offsets=seqs.chunk_offsets, T=seqs.T, NT=seqs.NT, H=k.shape[2] if keys else HV, HV=HV,
        ),
        constexprs=dict(
            K=K, C=C, BN=256 // C if keys else 64, BK=padded(K), WINDOW=WINDOW["keys" if keys else "gates"],
            FORGOTTEN=FORGOTTEN, REVERSE=reverse,
        ),
        num_warps=8 if keys else 4,
        num_stages=1,
    )  # fmt: skip
