"""The loop of a command: what ends it."""

import asyncio

import pytest

from kubesched.app import event_loop
from kubesched.base.errors import KubeschedError


def test_a_task_that_calls_exit_ends_the_command_with_its_reason():
    async def leave():
        raise SystemExit("the plugin has had enough")

    async def main():
        leaving = asyncio.ensure_future(leave())
        await asyncio.sleep(3600)
        return leaving

    with pytest.raises(KubeschedError, match="the plugin has had enough"):
        event_loop.run(main())


def test_a_result_comes_back():
    async def main():
        return 3

    assert event_loop.run(main()) == 3
