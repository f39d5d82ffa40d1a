"""The NUMA lab: a virtual machine with real nodes, in which a command runs on the host's own files.

Nothing of a run lies on the host's disk but what the command writes to its scratch folder:
the guest's first file system is made in memory,
and the virtual machine ends with the process that started it.
"""
