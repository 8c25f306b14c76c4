"""The op on sequences that are cut across ranks: ``load("gated_delta").context_parallel(mesh)``."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ..calling.autograd import differentiable
from ..calling.call import Call
from ..calling.fingerprint import fingerprint
from ..calling.function import Op, refuse_positional
from ..calling.transforms import refuse_transforms
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..planning.dtypes import name_of
from ..planning.least_recent import LeastRecent
from ..planning.sequences import check_agreement, host_lengths, lengths_of, read_packing, refuse
from .agreement import Agreement, is_ready
from .cut import ROWS, Cut, even_rows, packed_cut, plain_cut, rows_cut, tokens_of
from .exchange_stage import Ranks, ranks_of
from .gather_graph import gathering
from .parallel_library_op import parallel_library_op
from .split_graph import cut_errors, numbers_of, reach_of, sizes_of
from .split_op import SplitOp
from .states import states_here, whole_states
from .whole_numbers import whole_numbers


class ParallelOp:
    """An op whose rows are spread over the ranks of a group, each call made by all of them."""

    def __init__(self, op: Op, group: "DeviceMesh | dist.ProcessGroup | None" = None):
        self.op, self.ranks = op.with_mode("chunk"), group_ranks(group)
        if found := cut_errors(self.op.whole, self.op.stages):
            raise ChunkwiseError(*found)
        self.agreement, self.views = Agreement(self.ranks), LeastRecent(16)
        self.name = f"{op.spec.name} {fingerprint(self.op)}"
        self.library = parallel_library_op(self)

    def __repr__(self) -> str:
        return f"<{self.op!r} over {self.ranks.size} ranks>"

    def __deepcopy__(self, memo) -> "ParallelOp":
        """Itself, as an op is: models that hold one are copied, process groups cannot be."""
        return self

    def __call__(self, /, *positional, cu_seqlens=None, seqlens=None, rows=None, outputs=None, **given):
        """The op on this rank's rows of the tensors, all by name; every rank of the group calls it.

        Tensors with tokens hold the rows of this rank, [B, T here, ...]; the ranks' rows follow each other in the order
        of the ranks. cu_seqlens, seqlens: of the packed sequences whole, the same on every rank; they may be cut
        anywhere. rows: how many rows each rank has, for packed sequences that are not spread evenly (the first ranks
        have one more then, where that is left), and for attention where not all have as many. outputs: as in Op.

        Attention takes this rank's queries, keys and values; what has no tokens (lengths, q_ends, k_ends) is whole.

        States are whole: initial_state [N, ...] has all sequences on every rank, of which each rank reads those that
        begin on it; final_state [N, ...] has those that end on this rank, and 0 for the others. So is the gradient of
        an initial state, and of a constant of the model (A_log, say) a rank gives its share: added over the ranks they
        are what one process gives. Every rank calls backward too, whichever outputs its loss depends on, and runs
        compiled code or none does.

        Raises ChunkwiseError: what Op raises; RANKS_DIFFER before the first launch where ranks mean different calls;
        RANK_LOST where another rank is gone.
        """
        if torch.compiler.is_compiling():
            if positional:
                refuse_positional(self.op.spec)
            results = self.library.traced(given, cu_seqlens, seqlens, outputs, rows)
            return self.op.result(**{name: results.get(name) for name in self.op.spec.outputs})
        with self.agreement.telling():
            if positional:
                refuse_positional(self.op.spec)
            refuse_transforms(self.op.spec.name, given.values())
        call, cut = self.bind(given, cu_seqlens, seqlens, rows, outputs)
        results = differentiable(call, call.tensors)
        whole = {name: whole_states(x, cut, cut.ends) if self.is_state(name) else x for name, x in results.items()}
        return self.op.result(**{name: whole.get(name) for name in self.op.spec.outputs})

    def is_state(self, output: str) -> bool:
        value = self.op.whole.outputs[output]
        return self.op.whole.values[value].axes[0] == "N"

    def bind(self, given: Mapping, cu_seqlens=None, seqlens=None, rows=None, outputs=None) -> tuple[Call, Cut]:
        """One call with everything checked, here and against the other ranks; nothing launched yet."""
        call, cut = self.agreed(given, cu_seqlens, seqlens, rows, outputs)
        return (call if cut.spans < 2 else self.split(call, cut)), cut

    def agreed(self, given, cu_seqlens, seqlens, rows, outputs, compiled: Sequence[str] | None = None):
        """(the call on the rows here as if they were all, cut). compiled: the gradients that compiled code wants."""
        with self.agreement.telling():
            call, cut, lengths, rows = self.bind_here(given, cu_seqlens, seqlens, rows, outputs)
            facts = self.facts(call, lengths, rows, compiled)
        self.agreement.require(facts)
        return call, cut

    def split(self, call: Call, cut: Cut) -> Call:
        """The call with what the cut brings in around its scans."""
        reach, uneven = reach_of(cut.spans, self.ranks.size), cut.rows if cut.rows and len({*cut.rows}) > 1 else None
        view = self.views.get((call.op, reach, uneven), lambda: SplitOp(call.op, self.ranks, reach, uneven))
        here = sizes_of(call.graph, reach, self.ranks.size, cut.lanes, sum(cut.rows or ()))
        sizes, params = {**call.sizes, **here}, {**call.params, **numbers_of(reach, cut)}
        graph = view.fused(view.graph(call.graph.absent), sizes, call.device, call.io)
        return replace(call, op=view, graph=graph, sizes=sizes, params=params)

    def bind_here(self, given, cu_seqlens, seqlens, rows, outputs):
        """(the call on the rows here as if they were all, cut, lengths and rows of the whole call or None)."""
        tensors, _ = self.op.split(given)
        _, _, _, sizes = self.op.read(tensors)
        cut, lengths, rows = self.cut(cu_seqlens, seqlens, rows, sizes)
        states = {name: x for name, x in tensors.items() if x is not None and self.op.whole.inputs[name].axes[0] == "N"}
        for name, x in states.items():
            if len(x) != cut.total:
                message = f"{name} has {len(x)} states, and the sequences of all ranks are {cut.total}"
                raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help="states are whole, on every rank"))
        here = {name: states_here(x, cut, cut.begins) for name, x in states.items()}
        return self.op.bind({**given, **here}, None, cut.lengths, outputs), cut, lengths, rows

    def cut(self, cu_seqlens, seqlens, rows, sizes: Mapping) -> tuple[Cut, tuple | None, tuple | None]:
        """(this rank's part, lengths and rows of the whole call or None); sizes: of the inputs' axes here."""
        if gathering(self.op.whole):
            read_packing(cu_seqlens, seqlens, sizes, torch.device("cpu"))
            rows = self.gathered_rows(rows, sizes)
            return rows_cut(rows, self.ranks.rank), None, rows
        lengths = whole_lengths(cu_seqlens, seqlens)
        if lengths is None:
            if rows is not None:
                rows = host_lengths(rows, "rows", "rank")
                self.check_rows(rows, sizes["T"])
            return plain_cut(sizes.get("B", 1), self.ranks.rank, self.ranks.size), None, rows
        rows = self.checked_rows(rows, lengths, sizes)
        return packed_cut(lengths, rows, self.ranks.rank), lengths, rows

    def gathered_rows(self, rows: Sequence[int] | None, sizes: Mapping) -> tuple[int, ...]:
        """The rows of each rank of an op that needs those of all; as many as here, if nobody says otherwise."""
        own = tokens_of(sizes)
        rows = (own,) * self.ranks.size if rows is None else host_lengths(rows, "rows", "rank")
        self.check_rows(rows, own)
        return rows

    def check_rows(self, rows: tuple[int, ...], own: int, says: str = "rows says") -> None:
        """rows: of each rank. own: those that this one has."""
        rank = self.ranks.rank
        if len(rows) != self.ranks.size:
            refuse(f"rows has {len(rows)} numbers, and there are {self.ranks.size} ranks")
        if own != rows[rank]:
            refuse(f"rank {rank} has {own} rows, {says} {rows[rank]}", "pass rows=[...]: how many each rank has")

    def checked_rows(self, rows: Sequence[int] | None, lengths: tuple[int, ...], sizes: Mapping) -> tuple[int, ...]:
        """The rows of each rank, which hold all sequences; this rank has its own."""
        if rows is None:
            rows = even_rows(sum(lengths), self.ranks.size)
            self.check_rows(rows, sizes["T"], "spread evenly, it has")
            return rows
        rows = host_lengths(rows, "rows", "rank")
        self.check_rows(rows, sizes["T"])
        if sum(rows) < sum(lengths):
            refuse(f"the sequences have {sum(lengths)} tokens in all, the ranks have {sum(rows)} rows")
        return rows

    def facts(self, call: Call, lengths, rows, compiled) -> dict[str, Hashable]:
        """What must be the same on every rank."""
        sizes = tuple((axis, size) for axis, size in call.sizes.items() if axis not in (*ROWS, "N", "NT", "C"))
        trained = compiled
        if compiled is None:
            graded = call.tensors.items() if torch.is_grad_enabled() else ()
            trained = [name for name, x in graded if x is not None and x.requires_grad]
        return {
            "pipeline": self.name, "group": (self.ranks.group.group_name, self.ranks.members), "lengths": lengths,
            "rows": rows, **whole_numbers(call), "axes": sizes, "dtype": name_of(call.io), "back end": call.backend,
            "params": tuple(call.params.items()),
            "inputs": tuple(name for name, x in call.tensors.items() if x is not None),
            "gradients": tuple(trained), "outputs": tuple(call.wanted), "compiled": compiled is not None,
        }  # fmt: skip


def whole_lengths(cu_seqlens, seqlens) -> tuple[int, ...] | None:
    if cu_seqlens is None and seqlens is None:
        return None
    lengths = lengths_of(cu_seqlens) if seqlens is None else host_lengths(seqlens)
    if cu_seqlens is not None and seqlens is not None:
        check_agreement(cu_seqlens, lengths)
    return lengths


def group_ranks(group) -> Ranks:
    """The ranks of a one-dimensional mesh, of a process group, or, for None, of all processes."""
    if not is_ready():
        message = "context parallel needs a process group, and torch.distributed has none"
        help = 'start with torchrun, and call torch.distributed.init_process_group("nccl"), or "gloo" on CPUs'
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))
    if isinstance(group, DeviceMesh):
        group = group_of(group)
    elif group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup) or dist.get_rank(group) < 0:
        message = "a group is a DeviceMesh or a ProcessGroup that this process is in"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help='init_device_mesh("cuda", (8,)), or None for all'))
    return ranks_of(group)


def group_of(mesh: DeviceMesh) -> dist.ProcessGroup | None:
    """The group of a mesh of one dimension, whose order is the mesh's; None outside of it."""
    if mesh.ndim != 1:
        names = mesh.mesh_dim_names or tuple(range(mesh.ndim))
        message = f"sequences are cut along one dimension of a mesh, and this one has {mesh.ndim}"
        one = " or ".join(f"mesh[{name!r}]" for name in names)
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"pass {one}"))
    if mesh.get_coordinate() is None:
        return None
    group, placed = mesh.get_group(), mesh.mesh.tolist()
    if placed != dist.get_process_group_ranks(group):
        message = f"a mesh has its ranks in ascending order, as its process group has them, and this one has {placed}"
        help = "the ranks' rows follow each other in that order: DeviceMesh(device, sorted(ranks))"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))
    return group
