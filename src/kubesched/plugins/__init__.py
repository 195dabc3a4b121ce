"""The in-tree plugins, one module (or folder) each, named as upstream names them.

Column plugins answer for all nodes at once and contain no loop over nodes: rules about node objects are evaluated per
distinct value (`value_tables`, `node_selector_columns`), resources are plain column arithmetic (`node_resources`).
`registry` finds a plugin's class by name without importing the others.
"""
