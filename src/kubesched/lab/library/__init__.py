"""kubesched as a library: what `import kubesched` offers.

| Module | What |
|---|---|
| `objects` | nodes and pods by the thousand; objects from text, files, recordings, clusters |
| `cluster` | `Cluster`: the scheduler over these objects, in virtual time |
| `tables` | `Table`: results as columns, for data frames and notebooks |
| `results` | `Result`: placements, nodes and utilisation |
| `comparing` | `compare`: configurations on a trace, paired by seed |
| `environments` | Gymnasium environments |

Its names are exported by the package `kubesched`, which imports them on first use.
"""
