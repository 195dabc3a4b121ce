"""In-tree plugins, one module or package each, named as in upstream's `framework/plugins`.

Column plugins evaluate all nodes at once, without a loop over nodes: conditions on node objects are
evaluated once per distinct value (`helper.value_tables`, `helper.node_selector_columns`), resources
with column arithmetic (`node_resources`). `registry` imports a plugin when it is first used.
"""
