"""The expression grammar: precedence, numbers, statements, and texts that mean harm."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkwise.runner.expression import (
    Binary,
    Call,
    ExpressionError,
    Name,
    evaluate_number,
    names_in,
    number_problems,
    parse_expression,
    parse_statement,
)

AXES = {"B": 1, "T": 130, "H": 2, "HV": 4, "K": 128, "V": 128, "C": 64}


def value(text, names=AXES):
    return evaluate_number(parse_expression(text), names)


def error(text, names=AXES):
    with pytest.raises(ExpressionError) as caught:
        value(text, names)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "2 + 3 * 4", "(2 + 3) * 4", "-2 ** 2", "2 ** 3 ** 2", "2 ** -1", "-7 // 2", "-7 % 3", "7 - 2 - 1", "8 / 4 / 2",
        "- - 2", "+3", "1e-3", ".5 + 1.", "2 * -3", "1 - -1", "2 < 3", "2 + 2 == 4", "3 != 3", "(1 < 2) & (3 >= 3)",
        "(1 < 0) | (0 <= 0)", "5 % 3 * 2",
    ],
)  # fmt: skip
def test_means_what_python_means(text):
    assert value(text) == eval(text)  # noqa: S307  the test's own texts, held against Python


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.integers(0, 9).map(str),
        lambda part: (
            st.tuples(part, st.sampled_from(["+", "-", "*"]), part).map(
                lambda x: f"({x[0]} {x[1]} {x[2]})" if len(x[0]) % 2 else f"{x[0]} {x[1]} {x[2]}"
            )
            | part.map(lambda x: f"-{x}")
        ),
        max_leaves=20,
    )
)
def test_integers_as_python(text):
    try:
        assert value(text) == eval(text)  # noqa: S307
    except ExpressionError as caught:
        assert "too large" in caught.message or "deeper" in caught.message


def test_params_constraints_flops():
    assert value("K ** -0.5") == 128**-0.5
    assert value("HV % H == 0") is True
    assert value("2 * B * T * HV * C * K") == 2 * 130 * 4 * 64 * 128
    assert value("is_power_of_two(C)") is True
    assert value("is_power_of_two(48)") is False
    assert value("is_power_of_two(0)") is False
    assert value("ceil_div(T, C)") == 3
    assert value("max(K, C, 3) + min(1, 2)") == 129
    assert value("floor(2.5) + ceil(2.5)") == 5
    assert value("sqrt(abs(-4)) + exp(0) + log2(8)") == 6.0
    assert value("log(2)") == math.log(2)
    assert isinstance(value("2 ** 40 * 3"), int)


def test_names_are_free_names_only():
    assert names_in(parse_expression("exp(g) * sum(k * k, axis=K) + g")) == {"g", "k"}


def test_spans():
    tree = parse_expression("a +  (b * c)")
    assert isinstance(tree, Binary)
    assert (tree.start, tree.end) == (0, 12)
    assert (tree.right.start, tree.right.end) == (5, 12)
    assert (tree.right.left.start, tree.right.left.end) == (6, 7)


def test_precedence_of_and_is_above_comparison():
    tree = parse_expression("a < b & c")
    assert tree.op == "<"
    assert tree.right.op == "&"


def test_call():
    tree = parse_expression("sum(k * k, axis=K)")
    assert isinstance(tree, Call)
    assert (tree.function.id, len(tree.args), tree.axis) == ("sum", 1, Name("K", 16, 17))


def test_statement():
    statement = parse_statement("S = exp(g) * S if g")
    assert (statement.target.id, statement.condition) == ("S", Name("g", 18, 19))
    assert parse_statement("keep = a == b").condition is None


@pytest.mark.parametrize(
    ("text", "message", "start", "end", "help"),
    [
        ("", "expected a value, found the end", 0, 1, None),
        ("K +", "expected a value, found the end", 3, 4, None),
        ("(K", "expected ')' to close the parenthesis, found the end", 2, 3, None),
        ("K)", "expected an operator or the end, found ')'", 1, 2, None),
        ("H K", "expected an operator or the end, found 'K'", 2, 3, None),
        ("KK", "unknown name 'KK'", 0, 2, "did you mean K?"),
        ("sqr(K)", "no function 'sqr'", 0, 3, "did you mean sqrt?"),
        ("sqrt(K, 2)", "sqrt takes 1 argument, got 2", 0, 10, None),
        ("max(K)", "max takes at least 2 arguments, got 1", 0, 6, None),
        ("K ^ 2", "unexpected character '^'", 2, 3, "a power is written **"),
        ("K.real", "unexpected character '.'", 1, 2, "there is no attribute access and no indexing"),
        ("2x", "'2x' is not a number", 0, 2, "write numbers as 2, 0.5 or 1e-3"),
        ("K = 2", "'=' in an expression", 2, 3, "a comparison is written =="),
        ("1 < 2 < 3", "comparisons do not chain", 6, 7, "write (a < b) & (b < c)"),
        (
            "K & 1",
            "'&' joins comparisons, this is a number",
            0,
            1,
            "put each comparison in parentheses: (a < b) & (c < d)",
        ),
        ("1 + (K > 2)", "a comparison where a number is needed", 4, 11, None),
        ("K @ K", "'@' joins tensors, these are numbers", 0, 5, None),
        ("K / (H - 2)", "division by zero", 0, 11, None),
        ("K % 0", "division by zero", 0, 5, None),
        ("1 + sqrt(-1)", "not defined for this argument", 4, 12, None),
        ("log(0)", "not defined for this argument", 0, 6, None),
        ("(-1) ** 0.5", "the result is not a real number", 0, 11, None),
        ("exp(1000)", "the result is too large", 0, 9, None),
        ("max(K, 1, axis=K)", "max of numbers takes no axis=", 15, 16, None),
        ("max(K, dim=1)", "no keyword 'dim'", 7, 10, "the only keyword of a call is axis=NAME"),
        ("sum(K, axis=K, 1)", "a value after axis=", 15, 16, "axis=NAME comes last"),
        ("1 if K else 2", "expected an operator or the end, found 'if'", 2, 4, None),
    ],
)
def test_mistakes(text, message, start, end, help):
    caught = error(text)
    assert (caught.message, caught.start, caught.end, caught.help) == (message, start, end, help)


@pytest.mark.parametrize("text", [
    "K @ K", "K & 1", "1 + (K > 2)", "-(K > 2)", "min(K > 2, 1)", "is_power_of_two(K) * 2", "(K < 3) & V",
])  # fmt: skip
def test_mixed_kinds_are_seen_without_numbers(text):
    """What a command says that evaluates nothing is what one says that does."""
    found, *_ = number_problems(parse_expression(text), ["K", "V"])
    assert (found.message, found.start, found.end) == (error(text).message, error(text).start, error(text).end)


def test_comparisons_of_comparisons_are_no_mistake():
    assert number_problems(parse_expression("(K < 3) == (V < 3)"), ["K", "V"]) == []


@pytest.mark.parametrize(
    ("text", "message", "start", "end", "help"),
    [
        ("o", "not an assignment", 0, 1, "a line is written name = expression"),
        ("o == 1", "not an assignment", 0, 1, "a line is written name = expression"),
        ("1 = o", "not an assignment", 0, 1, "a line is written name = expression"),
        ("o = 1 if", "expected the name of an optional input, found the end", 8, 9, None),
        ("o = 1 if g else 2", "expected an operator or the end, found 'else'", 11, 15, None),
        ("o = p = 1", "expected an operator or the end, found '='", 6, 7, None),
        ("lambda = 1", "expected a name to assign to, found 'lambda'", 0, 6, None),
    ],
)
def test_mistaken_statements(text, message, start, end, help):
    with pytest.raises(ExpressionError) as caught:
        parse_statement(text)
    assert (caught.value.message, caught.value.start, caught.value.end, caught.value.help) == (
        message,
        start,
        end,
        help,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 1000, "nested deeper than 64"),
        ("-" * 1000 + "1", "nested deeper than 64"),
        ("f(" * 300, "nested deeper than 64"),
        ("2 ** " * 300 + "2", "nested deeper than 64"),
        ("1" + " + 1" * 400, "nested deeper than 64"),
        ("1 + " * 600 + "1", "expression of 2401 characters; the limit is 2000"),
        ("9 ** 9 ** 9", "exponent 387420489 is beyond 64"),
        ("2 ** 65", "exponent 65 is beyond 64"),
        ("2 ** -65", "exponent -65 is beyond 64"),
        ("((9 ** 64) ** 64) ** 64", "the result is too large"),
        ("10.0 ** 308 * 10", "the result is too large"),
        ("1" * 41, "number of 41 characters; the limit is 40"),
        ("1e999", "1e999 is too large for a float"),
        ("__import__('os')", 'unexpected character "\'"'),
        ("__import__(1)", "no function '__import__'"),
        ("().__class__", "unexpected character '.'"),
        ("()", "expected a value, found ')'"),
        ("K[0]", "unexpected character '['"),
        ("K\x00", "unexpected character '\\x00'"),
        ("Κ", "unexpected character 'Κ'"),  # noqa: RUF001  a Greek capital kappa
        ("lambda: 1", "unexpected character ':'"),
    ],
)
def test_hostile_texts(text, message):
    assert error(text).message == message


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="KHg0123456789.e+-*/%@<>=&|(), if_[]'\"\\\n", max_size=80))
def test_any_text_gives_a_tree_or_an_error_inside_it(text):
    try:
        value(text)
    except ExpressionError as caught:
        assert 0 <= caught.start < max(caught.end, 1) <= len(text) + 1
