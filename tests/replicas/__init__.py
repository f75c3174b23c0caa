"""Three replicas of ClickHouse and their coordinator, as processes of this machine, for tests.

`rig.Rig` starts them; `server` is one replica's process, `library` what has to be changed in the
loaded library for it, `coordinator` ZooKeeper, `front` what stands before the replicas: a proxy
of each, or a balancer. Never part of the product.
"""
