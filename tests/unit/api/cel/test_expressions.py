"""Expressions with the values and errors that the language and Kubernetes' libraries define."""

import pytest

from kubesched.api.cel import (
    KUBERNETES,
    CompileError,
    Environment,
    EvaluationError,
    InstantiationError,
    compile,
    types,
)

ENVIRONMENT = Environment({"any": types.ANY, "text": types.STRING}, KUBERNETES, 1_000_000)
BINDINGS = {"any": {"n": 1, "s": "abc", "l": [1, 2]}, "text": "some text"}

TRUE = """
1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1 && 7 % -3 == 1
--1 == 1 && !!true && -(-3) == 3 && 1 - -1 == 2
1 < 1.5 && 2u > 1 && 1.0 <= 1 && dyn(1) == 1.0 && dyn(1u) == dyn(1)
0x10 == 16 && 1e3 == 1000.0 && .5 == 0.5 && 10u == uint(10)
'a' + 'b' == 'ab' && 'a' < 'b' && 'é' > 'z' && size('éè') == 2
r'\\d' == '\\\\d' && '\\u0041\\x42\\103' == 'ABC' && b'\\xff\\377' == b'\\xff\\xff'
'''a'b''' == 'a\\'b' && \"\"\"c\"d\"\"\" == 'c"d'
[1, 2] + [3] == [1, 2, 3] && 2 in [1, 2] && 'k' in {'k': 1} && !(3 in {1: 'x'})
{1: 'a'}[1] == 'a' && {1: 'a'}[dyn(1u)] == 'a'
{true: 'b'}[true] == 'b' && {'a': {'b': 2}}.a.b == 2
dyn([1, 2]) == [1.0, 2.0] && {'a': 1} == {'a': 1} && [[1]] != [[2]]
null == null && dyn(null) != 1
any.n + 1 == 2 && any['s'].startsWith('a') && any.l[1] == 2 && has(any.s) && !has(any.x)
(true ? any : any).n == 1 && (false ? 1 : 2) == 2
any.nosuch == 1 || true
!(false && any.nosuch)
[1, 2, 3].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x > 1)
[1, 2, 0].exists(x, 1 / x > 0) && ![1, 0].all(x, 1 / x > 1)
[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6]
[1, 2, 3].filter(x, x > 1) == [2, 3] && {'a': 1}.map(k, k) == ['a']
[1, 2].map(x, [3, 4].map(y, x * y)) == [[3, 4], [6, 8]]
[1, 2].all(i, v, v == i + 1) && {'a': 1}.exists(k, v, k == 'a' && v == 1)
[1, 2].transformList(i, v, i * v) == [0, 2] && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}
{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}
cel.bind(x, 2, x * x) == 4 && cel.bind(unused, 1 / 0, true)
type(1) == int && type('a') == string && type([1]) == list && type(type(1)) == type
int('12') == 12 && int(2.9) == 2 && uint('7') == 7u && double('1.5') == 1.5 && bool('true')
string(1e6) == '1e+06' && string(123456.0) == '123456'
string(true) == 'true' && string(b'a') == 'a'
duration('1h30m').getMinutes() == 90 && string(duration('1.5s')) == '1.5s'
timestamp('2026-02-03T04:05:06Z').getHours() == 4
timestamp('2026-02-03T04:05:06Z').getDayOfWeek() == 2
timestamp('2026-02-03T04:05:06Z').getHours('+02:00') == 6
timestamp('2026-02-03T04:05:06Z') + duration('1h') == timestamp('2026-02-03T06:05:06+01:00')
string(timestamp('2026-02-03T04:05:06.5+02:00')) == '2026-02-03T04:05:06.5+02:00'
optional.of(1).value() == 1 && !optional.none().hasValue() && optional.none().orValue(3) == 3
{'a': 1}.?b.orValue(2) == 2 && [1][?3].orValue(7) == 7 && {'a': {'b': 1}}.?a.b == optional.of(1)
optional.of(1).optMap(x, x + 1).value() == 2
!optional.of(1).optFlatMap(x, optional.none()).hasValue()
[?optional.none(), 1] == [1] && {?'a': optional.none()} == {}
!optional.ofNonZeroValue('').hasValue()
'hello'.charAt(1) == 'e' && 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3
'a,b,c'.split(',', 2) == ['a', 'b,c'] && ['a', 'b'].join('-') == 'a-b'
'aaa'.replace('a', 'b', 2) == 'bba'
'hello'.substring(1, 3) == 'el' && '  a '.trim() == 'a'
'aB'.lowerAscii() == 'ab' && 'aB'.upperAscii() == 'AB'
'%s %d %.2f %x %b'.format(['a', 1, 1.5, 255, true]) == 'a 1 1.50 ff 1'
'%f'.format([1234.5]) == '1,234.500000'
'%s'.format([[1, 'a', {'k': 1.5}]]) == '[1, "a", {"k":1.500000}]' && '%%'.format([]) == '%'
strings.quote('a\\n"b"') == '"a\\\\n\\\\"b\\\\""'
[3, 1, 2].sort() == [1, 2, 3] && ['bb', 'a'].sortBy(x, size(x)) == ['a', 'bb']
[1, 1].distinct() == [1]
[1, 2, 3].slice(1, 2) == [2] && [[1], [2]].flatten() == [1, 2]
[1, 2].reverse() == [2, 1] && lists.range(2) == [0, 1]
[1, 2].sum() == 3 && [2, 1].min() == 1 && [1, 2].isSorted()
[1, 2, 1].lastIndexOf(1) == 2 && [].sum() == 0
[1].first().value() == 1 && ![].last().hasValue()
sets.contains([1, 2], [1]) && sets.equivalent([1], [1, 1]) && !sets.intersects([1], [2])
'abc'.matches('^a.c$') && 'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']
isIP('::1') && !isIP('::ffff:1.2.3.4')
ip('10.0.0.1').family() == 4 && ip.isCanonical('2001:db8::1')
cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')
url('https://u@h.com:8080/p%20q?a=1&a=2').getHost() == 'h.com:8080' && isURL('/path')
!isURL('path')
url('https://h.com/?a=1&a=2').getQuery() == {'a': ['1', '2']}
url('http://[::1]:80/').getHostname() == '::1'
quantity('1Gi') == quantity('1024Mi') && quantity('1k').compareTo(quantity('1000')) == 0
sign(quantity('-1')) == -1
quantity('1').add(1) == quantity('2') && quantity('5').asInteger() == 5
!quantity('1000m').isInteger()
semver('1.2.3') == semver('1.2.3+build') && semver('1.2.3-alpha').isLessThan(semver('1.2.3'))
semver('v1.2', true) == semver('1.2.0') && semver('1.0.0-a.1').isLessThan(semver('1.0.0-a.b'))
!isSemver('1.2')
format.dns1123Label().validate('a_b').hasValue() && !format.named('nosuch').hasValue()
!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()
// a comment
"""


@pytest.mark.parametrize(
    "expression", [line for line in TRUE.strip().splitlines() if not line.startswith("//")]
)
def test_true_is_true(expression):
    assert compile(expression, ENVIRONMENT).run(BINDINGS)[:2] == (True, None)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-(-9223372036854775808)", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("duration('9223372036s') + duration('9223372036s')", "integer overflow"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("0.0 / 0.0 < 1.0", "NaN values cannot be ordered"),
        ("[1, 2][5]", "index out of bounds: 5"),
        ("{'a': 1}['b']", "no such key: b"),
        ("any.x.y", "no such key: x"),
        ("any.s.x", "no such key: x"),
        ("any.n < 'a'", "no such overload"),
        ("any.l + 1", "no such overload"),
        ("any.n.startsWith('a')", "no such overload"),
        ("any && true", "no such overload"),
        ("any.n ? 1 : 2", "no such overload"),
        ("size(any.n)", "no such overload: size"),
        ("-any.l", "no such overload: -_"),
        ("int(any.l)", "no such overload: int(list)"),
        ("semver(any.n)", "no such overload: semver(int)"),
        ("int(any.s)", "type conversion error from 'string' to 'int'"),
        ("timestamp(any.s)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ("any.n == ip('1.1.1.1') || dyn(ip('1.1.1.1')) == 1", "no such overload"),
        ("quantity('2') == quantity('1').add(1)", "no such overload"),
        ("any.l.map(x, x / 0)", "division by zero"),
        ("any.n.map(x, x)", "got 'types.Int', expected iterable type"),
        ("any.n.all(k, v, true)", "unsupported comprehension range type: types.Int"),
        ("[1, 2].transformMapEntry(i, v, {'k': v})", "insert failed: key k already exists"),
        ("optional.none().value()", "optional.none() dereference"),
        ("'abc'.charAt(9)", "index out of range: 9"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("[1].slice(0, 5)", "cannot slice(0, 5), list is length 1"),
        ("[].min()", "min called on empty list"),
        (
            "ip('x')",
            'IP Address "x" parse error during conversion from string: ParseAddr("x"): '
            "unable to parse IP",
        ),
        (
            "url('path')",
            'URL parse error during conversion from string: parse "path": invalid URI for request',
        ),
        ("quantity('1500m').asInteger()", "cannot convert value to integer"),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
        ("semver('01.2.3')", 'Major number must not contain leading zeroes "01"'),
        (
            "text.find(text + '(')",
            "Illegal regex: error parsing regexp: missing closing ): `some text(`",
        ),
    ],
)
def test_errors_have_upstreams_texts(expression, message):
    with pytest.raises(EvaluationError) as raised:
        compile(f"dyn({expression})", ENVIRONMENT).evaluate(BINDINGS)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("uint(-1)", "unsigned integer overflow"),
        ("int(1e30)", "integer overflow"),
        ("'a'.find('(')", "error parsing regexp: missing closing ): `(`"),
    ],
)
def test_constant_parts_are_evaluated_at_compile_time(expression, message):
    with pytest.raises(InstantiationError) as raised:
        compile(expression, ENVIRONMENT)
    assert str(raised.value) == message


OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, "
    "BYTES, IDENTIFIER}"
)


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("nosuch", 1, "undeclared reference to 'nosuch' (in container '')"),
        ("nosuch(1)", 7, "undeclared reference to 'nosuch' (in container '')"),
        ("1 + 1.0", 3, "found no matching overload for '_+_' applied to '(int, double)'"),
        ("text.major()", 11, "found no matching overload for 'major' applied to 'string.()'"),
        ("[1, 'a']", 5, "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'x'}", 15, "expected type 'int' but found 'string'"),
        ("1 && true", 1, "expected type 'bool' but found 'int'"),
        ("text.field", 5, "type 'string' does not support field selection"),
        (
            "text.all(x, true)",
            1,
            "expression of type 'string' cannot be range of a comprehension "
            "(must be list, map, or dynamic)",
        ),
        ("9223372036854775808", 1, "invalid int literal"),
        ("has(text)", 5, "invalid argument to has() macro"),
        ("[1].all(1, true)", 9, "argument must be a simple name"),
        ("timestamp('x')", 11, "invalid timestamp argument"),
        ("text.matches('(')", 14, "invalid matches argument"),
        (
            "'%d'.format(['a'])",
            14,
            "error during formatting: decimal clause can only be used on integers, was given "
            "string",
        ),
        (
            "'%s'.format([1, 2])",
            12,
            "too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("if", 1, "reserved identifier: if"),
        ("Foo{a: 1}", 4, "undeclared reference to 'Foo' (in container '')"),
        ("true &&", 8, f"Syntax error: mismatched input '<EOF>' expecting {OPERAND}"),
        ("1 2", 3, "Syntax error: extraneous input '2' expecting <EOF>"),
        ("1 2 3", 3, "Syntax error: mismatched input '2' expecting <EOF>"),
        ("(1", 3, "Syntax error: missing ')' at '<EOF>'"),
        ("[1 2]", 4, "Syntax error: extraneous input '2' expecting {']', ','}"),
        ("{1}", 3, "Syntax error: mismatched input '}' expecting ':'"),
        ("text.", 6, "Syntax error: no viable alternative at input '.'"),
        ("text.true", 6, "Syntax error: mismatched input 'true' expecting IDENTIFIER"),
        ("1 + + 2", 5, f"Syntax error: extraneous input '+' expecting {OPERAND}"),
        ("1;", 2, "Syntax error: token recognition error at: ';'"),
        ("text.`a`", 6, "unsupported syntax: '`'"),
    ],
)
def test_what_does_not_compile(expression, column, message):
    with pytest.raises(CompileError) as raised:
        compile(expression, ENVIRONMENT)
    assert [(issue.column + 1, issue.message) for issue in raised.value.issues] == [
        (column, message)
    ]
