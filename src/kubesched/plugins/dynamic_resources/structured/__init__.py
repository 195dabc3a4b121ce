"""The structured allocator: which devices satisfy a pod's claims on one node. No I/O, no scheduler.

allocator        entry point: one `Allocator` per scheduling attempt, called node by node
pools            which slices, and thus which devices, a node can reach
node_pools       the pools of all nodes, cached between attempts, and node signatures
allocated_state  devices, shares and capacity that are already allocated
requests         a claim's requests, checked before the search
selectors        class and request selectors over devices (CEL)
capacity         consumable capacity: what a request consumes of a device
counters         counters shared by the devices of a pool
constraints      matchAttribute and distinctAttribute
candidates       a device considered for a request: taints, and all that the search need not repeat
search           depth-first search for the first complete solution
results          the `AllocationResult` of a solution
features         optional parts, by feature gate
failures         allocation errors

Mirrors `structured/internal/incubating` of k8s.io/dynamic-resource-allocation. The order of pools,
slices and devices is part of the contract: the first fit wins.
"""
