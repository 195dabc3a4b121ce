"""Agreement with kube-scheduler: recorded answers, our answers, and where the two differ.

recordings   the files: clusters, pods and what kube-scheduler decided about them
placements   our decision for one recorded pod, by the code that schedules in production
comparison   aspect by aspect, the one against the other
sequences    what happens to a cluster step by step, and what was decided at each
marks        how a player knows which events a scheduler has handled
extenders    what the extenders of a sequence answer; `extender_server` serves them, `replay_extenders` without a network
replay       our decisions about a sequence, in memory
golden       whole files
generate     clusters, pods (`generate`) and sequences (`generate_sequence`) at random
play, run   sequences on real control planes, to kube-scheduler and to this scheduler
shrink       a difference, made small and written out as manifests
"""
