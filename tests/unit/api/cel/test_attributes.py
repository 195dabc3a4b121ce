"""The fast look-ups of constant text keys agree with the general ones."""

from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.cel import KUBERNETES, DefaultMap, Environment, compile, types

ENVIRONMENT = Environment({"x": types.DYN}, KUBERNETES)
KEYS = ("a", "b")
SCALARS = st.one_of(st.integers(-2, 2), st.booleans(), st.none(), st.sampled_from(["a", "text"]))
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=2).map(
            lambda entries: DefaultMap(entries, {})
        ),
        st.lists(inner, max_size=2),
    ),
    max_leaves=8,
)


def outcome(expression, data):
    value, error, _cost = compile(expression, ENVIRONMENT).run({"x": data})
    return (value, type(value)) if error is None else str(error)


@given(DATA, st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
def test_chains_of_selections(data, keys):
    chain = "".join(f".{key}" for key in keys)
    # The operand of a selection behind a call is not a variable, which is the general case.
    assert outcome(f"x{chain}", data) == outcome(f"dyn(x){chain}", data)
    assert outcome(f"has(x{chain})", data) == outcome(f"has(dyn(x){chain})", data)
    indexed = "".join(f"['{key}']" for key in keys)
    assert outcome(f"x{indexed}", data) == outcome(f"x{chain}", data)


@given(SCALARS, st.sampled_from(["a", "text", ""]))
def test_comparison_with_a_constant_text(value, text):
    for operator in ("==", "!="):
        fast = outcome(f"x {operator} '{text}'", value)
        assert fast == outcome(f"x {operator} dyn(['{text}'][0])", value)
