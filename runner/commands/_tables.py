"""Plain tables: a heading, columns, no lines. Cells are text, never rich's markup."""

from collections.abc import Iterable, Mapping, Sequence


def table(title: str, columns: Mapping[str, str], rows: Iterable[Sequence[str]]):
    """columns: heading -> left or right."""
    from rich.table import Table
    from rich.text import Text

    result = Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False)
    for number, (heading, justify) in enumerate(columns.items()):
        result.add_column(Text(heading), justify=justify, no_wrap=number == 0)
    for row in rows:
        result.add_row(*map(Text, row))
    return result
