"""Numbers on the command line."""

import argparse

import pytest

from kubesched.app.cli.parsing import number, positive


def test_digits_are_numbers():
    assert (number("0"), number("007"), positive("12")) == (0, 7, 12)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "²", "٣", "1_000"])
def test_nothing_else_is_one(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number"):
        number(text)


def test_a_positive_number_begins_at_one():
    with pytest.raises(argparse.ArgumentTypeError, match="'0' is not a positive number"):
        positive("0")
