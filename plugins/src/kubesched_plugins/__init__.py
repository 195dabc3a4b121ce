"""Plugins of kubernetes-sigs/scheduler-plugins on kubesched's plugin contract.

Names, arguments and answers are those of the originals; `python -m kubesched_plugins.golden`
compares the answers with recordings of them. Only `kubesched.framework`, its `api` and
`kubesched.testing` are imported.
"""
