"""What Triton's launcher does in Python, left out: its part in C is handed what the launcher would hand on."""

import pytest
from triton.backends.nvidia.driver import CudaLauncher

from chunkwise.runner.launching.direct import Cell, direct

DEFAULTS = dict(
    num_ctas=1, launch_cooperative_grid=False, launch_pdl=True, arg_annotations="annotations", kernel_signature=b"s",
    global_scratch_size=0, global_scratch_align=1, profile_scratch_size=0, profile_scratch_align=1,
    launch=lambda *handed: handed,
)  # fmt: skip
VALUES = [2, 3, 1, 77, "function", "metadata", None, None, None, 1000, 2000, 0.5]


def launcher(**fields):
    """Triton's own class, as this version has it, with a part in C that gives what it is handed."""
    made = object.__new__(CudaLauncher)
    vars(made).update(DEFAULTS | fields)
    return made


class Cells(list):
    def constant(self, x):
        self.append(x)
        return len(self) - 1


def handed_on(made, values):
    """What arrives in C by the launcher itself."""
    found, launch = [], made.launch
    made.launch = lambda *handed: found.append(handed)
    made(*values)
    made.launch = launch
    return found[0]


@pytest.mark.parametrize("count", [0, 1, 2, 3], ids="{} arguments".format)
def test_the_part_in_c_gets_what_the_launcher_hands_on(count):
    made, cells = launcher(), Cells(VALUES[: 9 + count])
    launch, pick = direct(made, [Cell(at) for at in range(len(cells))], cells.constant)
    assert launch is made.launch
    for values in (VALUES[: 9 + count], [5, 6, 7, 78, *VALUES[4:9], *(1, 2, 3)[:count]]):
        cells[: len(values)] = values
        assert launch(*pick(cells)) == handed_on(made, values)


def test_constants_that_equal_the_number_of_a_cell_stay_constants():
    made, cells = launcher(launch_cooperative_grid=0, launch_pdl=1), Cells([70, *VALUES[1:]])
    launch, pick = direct(made, [Cell(at) for at in range(len(cells))], cells.constant)
    assert launch(*pick(cells)) == handed_on(made, cells[: len(VALUES)])


@pytest.mark.parametrize("needs", ["global_scratch_size", "profile_scratch_size"])
def test_a_launcher_that_makes_memory_is_called_itself(needs):
    made, cells = launcher(**{needs: 128}), Cells(VALUES)
    launch, pick = direct(made, [Cell(at) for at in range(len(cells))], cells.constant)
    assert launch is made and pick(cells) == tuple(VALUES)


def test_any_other_launcher_is_called_itself():
    cells = Cells(VALUES)
    launch, pick = direct(print, [Cell(at) for at in range(len(cells))], cells.constant)
    assert launch is print and pick(cells) == tuple(VALUES)
