"""Configuration: `KubeSchedulerConfiguration`, plugin arguments and feature gates.

A file goes through these steps, one module each:

    bytes --yaml_nodes--> nodes with line and column
          --schema------> the records of `types`; unknown fields and duplicates are problems
          --defaults----> every field and the plugin lists filled in (MultiPoint stays unexpanded)
          --validation--> problems, each with its field path

`load` runs them and raises one `ConfigError` with everything it found. `expansion` turns a
profile's plugins into one ordered list per extension point; `features` defines the gates. Nothing
here imports a plugin, opens a connection or reads the clock.
"""
