"""Definitions that do not fit: what is said, and which part of which line it is said of."""

import pytest

from chunkwise.runner.definition import DefinitionError, Line, parse_definition, typecheck
from chunkwise.runner.definition.functions import FUNCTIONS

INPUTS = {
    "q": "B T H K", "k": "B T H K", "v": "B T HV V", "g": "B T HV", "beta": "B T HV", "m": "B T H D D",
    "A_log": "HV", "initial_state": "N HV K V",
}  # fmt: skip
TURN = "{0} is the wrong way round: transpose({0}), or right @ left for a vector on the {1}"
JOIN = "put each comparison in parentheses: (a < b) & (c < d)"


def lines(texts):
    return [Line(text, ("step", n)) for n, text in enumerate(texts)]


def block(step=("S = S + outer(k, v)",), state=None, final=None, let=()):
    state = {"S": "initial_state"} if state is None else state
    return {
        "state": {name: Line(text, ("state", name)) for name, text in state.items()},
        "let": [Line(text, ("let", n)) for n, text in enumerate(let)],
        "step": lines(step),
        "final": {name: Line(text, ("final", name)) for name, text in (final or {}).items()},
    }


def problems(block, **options):
    declared = {name: tuple(shape.split()) for name, shape in INPUTS.items()}
    with pytest.raises(DefinitionError) as caught:
        typecheck(parse_definition(block), declared, axes=("C",), params=("scale",), **options)
    return caught.value.problems


@pytest.mark.parametrize(
    ("marked", "message", "help"),
    [
        ("S = [S + outer(v, k)]", "'+' joins (K, V) with (V, K)", "transpose(x) swaps two axes"),
        ("S = [k * S]", "'*' joins (K) with (K, V)", "diag(x) @ S scales the rows of S, S @ diag(x) its columns"),
        ("x = 1 + [(k + v)]", "'+' joins (K) with (V)", "outer(a, b) gives a matrix"),
        ("x = [maximum(k, v)]", "maximum joins (K) with (V)", "outer(a, b) gives a matrix"),
        ("o = [v @ S]", "'@' contracts V of (V) with K of (K, V)", TURN.format("right", "left")),
        ("o = [S @ k]", "'@' contracts V of (K, V) with K of (K)", TURN.format("left", "right")),
        ("o = [m @ S]", "'@' contracts D of (D, D) with K of (K, V)", None),
        ("o = [g] @ S", "'@' with a scalar", "a scalar multiplies with *"),
        ("S = [transpose(S)]", "state 'S' is (K, V), this line gives (V, K)", "transpose(x) swaps two axes"),
        ("S = [g]", "state 'S' is (K, V), this line gives a scalar", None),
        ("S = [S > 0]", "state 'S' is (K, V), this line gives a comparison", None),
        ("o = diag([g]) @ S", "diag takes 1 axis, this is a scalar", None),
        ("o = outer(k, [S])", "outer takes 1 axis, this is (K, V)", None),
        ("o = transpose([k])", "transpose takes 2 axes, this is (K)", None),
        ("o = sum(k, axis=[V])", "'V' is no axis of (K)", None),
        ("o = sum(m, axis=[D])", "'D' is twice in (D, D)", "name a side with @ ones(D) or ones(D) @"),
        ("o = [sum(k)]", "sum without axis=", "write sum(x, axis=NAME)"),
        ("o = [sum(k, K)]", "sum takes 1 argument, got 2", "write sum(x, axis=NAME)"),
        ("o = exp(k, axis=[K])", "exp takes no axis=", None),
        ("o = [clamp(k)]", "clamp takes 3 arguments, got 1", None),
        ("o = where([k], 1, 0)", "where needs a comparison first", None),
        (
            "o = 2 * [(k > 0)]",
            "'*' takes numbers, this is a comparison",
            "turn it into a number by where(condition, 1, 0)",
        ),
        ("o = k > 0 & k [<] 1", "comparisons do not chain", "write (a < b) & (b < c)"),
        ("o = where([k] & k, 1, 0)", "'&' joins comparisons, this is a number", JOIN),
        ("o = zeros([k])", "'k' is no inner axis of this pipeline", "did you mean K?"),
        ("o = zeros([T])", "'T' is no inner axis of this pipeline", None),
        ("o = zeros([2])", "zeros takes axis names", None),
        ("o = [kk] @ S", "unknown name 'kk'", "did you mean k?"),
        ("o = [scal] * k", "unknown name 'scal'", "did you mean scale?"),
        ("o = [soft_max](k, axis=K)", "no function 'soft_max'", "did you mean softmax?"),
        ("o = [__import__](k)", "no function '__import__'", f"functions are {', '.join(FUNCTIONS)}"),
        ("o = [exp] * k", "'exp' is a function", None),
        ("o = [T] * k", "'T' is not known to a step, which runs for one token of one sequence", None),
        (
            "o = [o] + k",
            "'o' is used before it is assigned",
            "a value of the token before is a state: list it under state:; lines that a variant adds come last, "
            "and `OLD LINE: [lines]` puts several in a line's place",
        ),
        ("o = [index](K)", "'index' belongs to the dense form", None),
        ("[scale] = 2", "'scale' is a parameter", "take another name"),
        ("[K] = 2", "'K' is an axis", "take another name"),
        ("[exp] = 2", "'exp' is a function", "take another name"),
        ("o = 1 if [gg]", "no input 'gg'", "did you mean g?"),
        ("o = 1 if [g]", "input 'g' is never absent", None),
    ],
)
def test_a_line_that_does_not_fit(marked, message, help):
    """Brackets stand around the part that the problem is to point at."""
    (problem,) = problems(block([marked.replace("[", "").replace("]", "")]))
    assert (problem.message, problem.help) == (message, help)
    assert problem.line.where == ("step", 0)
    assert (problem.start, problem.end) == (marked.index("["), marked.index("]") - 1)


def test_every_problem_is_reported_once_and_in_order():
    found = problems(block(["a = k + v", "b = a * 2", "c = q @ v", "o = b + c + kk"]), optional=("g", "initial_state"))
    assert [(each.line.where[1], each.message) for each in found] == [
        (0, "'+' joins (K) with (V)"),
        (2, "'@' contracts K of (K) with V of (V)"),
    ]


def test_an_optional_input_needs_a_default_or_a_condition():
    step = ["S = exp(g) * S", "o = q @ S"]
    (problem,) = problems(block(step), optional=("g",))
    assert problem.message == "input 'g' is absent and has no default"
    assert problem.help == "give the input a default:, or end the line with `if g`"
    assert (problem.line.where, problem.start, problem.end) == (("step", 0), 8, 9)
    declared = {name: tuple(shape.split()) for name, shape in INPUTS.items()}
    typecheck(parse_definition(block(step)), declared, optional=("g",), defaults=("g",))
    typecheck(parse_definition(block(["S = exp(g) * S if g", "o = q @ S"])), declared, optional=("g", "initial_state"))


def test_a_value_of_a_dropped_line():
    (problem,) = problems(block(["a = exp(g) if g", "S = a * S"]), optional=("g",))
    assert problem.message == "'a' has no value when input 'g' is absent"
    assert (problem.line.where, problem.start, problem.end) == (("step", 1), 4, 5)


def test_states_and_finals():
    (problem,) = problems(block(state={"S": "v"}))
    assert problem.message == "an initial state cannot differ from token to token"
    assert problem.line.where == ("state", "S")
    (problem,) = problems(block(final={"final_state": "SS"}))
    assert problem.message == "final 'final_state' is to name a state, 'SS' is none"
    assert (problem.line.where, problem.help) == (("final", "final_state"), "did you mean S?")
    (problem,) = problems(block(let=["a = S @ v"]))
    assert problem.message == "'S' is a state, and let: lines come before any token"
    (problem,) = problems(block(let=["S = 1"]))
    assert problem.message == "'S' is a state"


def test_blocks():
    (problem,) = problems({"state": {}})
    assert problem.message == "a definition without step: or dense: lines"
    (problem,) = problems(block() | {"steps": []})
    assert (problem.message, problem.help) == ("unknown key 'steps' in definition", "did you mean step?")
    found = problems(block(["S = (", "o = 1 +", "x y"]))
    assert [each.message for each in found] == [
        "expected a value, found the end",
        "expected a value, found the end",
        "not an assignment",
    ]


def test_types_of_a_definition():
    declared = {name: tuple(shape.split()) for name, shape in INPUTS.items()}
    step = ["S = exp(g) * S", "S = S + outer(k, beta * (v - k @ S))", "o = scale * (q @ S)", "n = sum(k * k, axis=K)"]
    types = typecheck(parse_definition(block(step, final={"last": "S"})), declared, params=("scale",))
    assert types.states == {"S": ("K", "V")}
    assert types.values == {"S": ("K", "V"), "o": ("V",), "n": ()}
    assert types.finals == {"last": ("K", "V")}


def test_hostile_lines():
    nested = "o = " + "exp(" * 200 + "k" + ")" * 200
    assert problems(block([nested]))[0].message == "nested deeper than 64"
    assert problems(block(["o = " + "k + " * 600 + "k"]))[0].message.startswith("expression of")
    assert problems(block(["o = __import__('os').system('x')"]))[0].message == 'unexpected character "\'"'
