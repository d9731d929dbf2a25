"""Reading and writing of the nodes of the leader-coordinated mode, which are below `/leaders`.

`layout.py` defines the paths and the texts; only these modules import it. Each other module handles one concern, as in
`zookeeper/nodes/`. Registrations are handled by `zookeeper/nodes/registrations.py`, with the directory
`tree.REGISTRATIONS`.
"""
