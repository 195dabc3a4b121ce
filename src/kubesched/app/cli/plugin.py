"""`kubesched plugin`: make, list and check third-party plugins."""

from __future__ import annotations

import argparse

from kubesched.app.cli.options import add_options, add_output

DESCRIPTION = "Make, list and check plugins of your own."

_NEW = """\
Write a package with a plugin that filters and scores: arguments, events, tests, and what is needed
to install, type-check and test it. NAME is the plugin's, such as RackAware.
"""
_LIST = """\
List the plugins of installed packages, or with --all the in-tree ones too: where they come from,
which extension points they serve, and whether the scheduler may keep their answers. Imports them,
which runs their code.

With --live, the plugins of a running scheduler: what each costs, from the attempts that its metrics
sample, whether its answers are kept, and which of them blocked the scheduling loop.
"""
_CHECK = """\
Look for a cluster in which a plugin breaks a promise that the scheduler relies on: answers that are
not repeatable or depend on other pods, rules that keep what has changed, rejections that no event
undoes, scores out of range, Reserve that is not undone. Needs Hypothesis (the extra `testing`).

Exit code 0 means that none was found, 1 that one was, or that there is no such plugin.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("new", help="write a package for a plugin", description=_NEW)
    add_options(
        new,
        """
name NAME  the plugin's name
--dir DIR  folder to write; must not exist (default: the name in lower case with dashes)
""",
    )
    listed = verbs.add_parser("list", help="list installed plugins", description=_LIST)
    add_options(
        listed,
        """
--all              list the in-tree plugins, too
--live URL         what a scheduler serves at /debug/plugins, such as https://localhost:10259
--kubeconfig FILE {=}  with --live: credentials, and how the certificate is checked (default: as
    kubectl)
""",
    )
    add_output(listed, "table", "json", "yaml")
    check = verbs.add_parser("check", help="look for broken promises", description=_CHECK)
    add_options(
        check,
        """
plugin MODULE:CLASS        the class, or the name of an installed plugin
--args FILE                its arguments, as YAML or JSON
--examples N {positive=300}  clusters to try per promise
--only CHECK {*}           only this check, such as rules or events
""",
    )


def main(args: argparse.Namespace) -> int:
    from kubesched.app.cli import plugin_work

    if args.verb == "new":
        return plugin_work.new(args.name, args.dir)
    if args.verb == "list":
        if args.live:
            return plugin_work.show_live(args.output, args.live, args.kubeconfig)
        return plugin_work.show(args.output, with_in_tree=args.all)
    return plugin_work.check(args.plugin, args.args, args.examples, args.only)
