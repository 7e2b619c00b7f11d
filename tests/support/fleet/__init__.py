"""A cluster of real processes under faults, what was recorded of it, and the verdict.

plans      what shall happen, drawn from a seed before anything starts, and written down for replay
servers    PostgreSQL on TCP: restarts, crashes, standbys, a clock of its own
network    the links between the nodes and their database, which can be cut one way, both ways, politely or not
recorder   the target that the jobs call, in a process of its own, stamping every call with this machine's clock
members    the processes: started, killed, stopped, replaced
nemesis    does what the plan says, and notes when
records    everything that was seen, as plain values in one file
logs       what the processes said that they should not have said
checker    pure functions from a record to what is wrong with it
"""
