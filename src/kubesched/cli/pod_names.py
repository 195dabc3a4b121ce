"""Pod names for completion: asked of the cluster, with a short bound, and silent when it cannot be reached."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from kubesched.errors import KubeschedError

DEADLINE_S = 2.0
MOST_NAMES = 500


def pod_names(words: Sequence[str]) -> list[str]:
    """Names that may follow the words of a command line such as `explain pod -n web`; none if they cannot be had."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--namespace", default="")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--context", default="")
    try:
        args, rest = parser.parse_known_args(list(words))
    except argparse.ArgumentError:
        return []  # an option whose value is still to come
    if any(word == "--from" or word.startswith("--from=") for word in rest):
        return []
    from kubesched.app.event_loop import run

    try:
        return run(_list(args.kubeconfig, args.context, args.namespace))
    except (KubeschedError, OSError, TimeoutError):
        return []


async def _list(kubeconfig: str, context: str, namespace: str) -> list[str]:
    from kubesched.api.core_v1 import Pod
    from kubesched.state.live import live_client

    async with (
        asyncio.timeout(DEADLINE_S),
        live_client("completion", kubeconfig, context) as (client, config),
    ):
        page = await client.list_page(
            Pod,
            namespace or config.namespace,
            field_selector="status.phase!=Succeeded,status.phase!=Failed",
            limit=MOST_NAMES,
        )
    return sorted(pod.metadata.name for pod in page.items)
