"""A verification as a table and as JSON."""

from ..planning.dtypes import name_of
from .result import PeerRow, Row, Verification


def verify_table(result: Verification):
    from rich.table import Table

    sizes = ", ".join(f"{axis}={size}" for axis, size in result.sizes.items())
    table = Table(title=f"{result.pipeline}: {name_of(result.io)}, {result.backend}, {sizes}", title_justify="left")
    for name in ("stage", "value", "back end", "against"):
        table.add_column(name)
    for name in ("rel L2 err", "budget", "worst slice", "budget", ""):
        table.add_column(name, justify="right")
    for row in result.rows:
        table.add_row(*cells(row), style=None if row.ok else "bold red")
    for row in result.peers:
        table.add_row(*peer_cells(row))
    table.caption = "\n".join([summary(result), *peer_notes(result)])
    table.caption_justify = "left"
    return table


def cells(row: Row) -> tuple[str, ...]:
    v = row.verdict
    numbers = (f"{x:.1e}" for x in (v.rel_l2_err, v.budget, v.worst_slice_err, v.slice_budget))
    return (row.id, row.value, row.backend, row.against, *numbers, row.word)


def peer_cells(row: PeerRow) -> tuple[str, ...]:
    v = row.verdict
    numbers = (v.rel_l2_err, v.budget, v.worst_slice_err, v.slice_budget) if v else (None,) * 4
    return (row.peer, row.value, row.ran, row.against, *("" if x is None else f"{x:.1e}" for x in numbers), row.word)


def peer_notes(result: Verification) -> list[str]:
    """Why a peer's row is no ok, each reason once."""
    return list(dict.fromkeys(f"{row.peer}: {row.word}: {row.why}" for row in result.peers if row.why))


def summary(result: Verification) -> str:
    heads = f"; float64 on key heads {', '.join(map(str, result.heads))} at full length" if result.heads else ""
    if result.ok:
        return f"verified: {len(result.rows)} tensors within budget{heads}"
    bad = result.first_bad
    return f"FAILED at {bad.id}.{bad.value}: {bad.why}{heads}"


def document(result: Verification) -> dict:
    """``verify`` of the JSON reports: ok, outputs by name, stages."""
    return {
        "pipeline": result.pipeline,
        "verify": {
            "ok": result.ok,
            "dtype": name_of(result.io),
            "backend": result.backend,
            "case": result.case,
            "axes": dict(result.sizes),
            "seqlens": result.lengths,
            "heads": result.heads,
            "outputs": {row.value: entry(row) for row in result.rows if row.id == "op"},
            "expected": [
                {"output": row.value, "from": row.backend, **entry(row)} for row in result.rows if row.id == "file"
            ],
            "stages": [
                {"id": row.id, "output": row.value, **entry(row)} for row in result.rows if row.id not in ("op", "file")
            ],
            "peers": [peer_entry(row) for row in result.peers],
        },
    }


def entry(row: Row) -> dict:
    v = row.verdict
    return {
        "ok": row.ok,
        "rel_l2_err": v.rel_l2_err,
        "budget": v.budget,
        "worst_slice_rel_l2_err": v.worst_slice_err,
        "worst_slice_budget": v.slice_budget,
        "against": row.against,
        "why": row.why,
    }


def peer_entry(row: PeerRow) -> dict:
    """ok: it was compared and is within budget."""
    v, about = row.verdict, {"peer": row.peer, "ran": row.ran, "output": row.value, "word": row.word, "why": row.why}
    if v is None:
        return {**about, "ok": False}
    return {**about, "ok": v.ok, "rel_l2_err": v.rel_l2_err, "budget": v.budget, "against": row.against}
