"""A Kubernetes control plane of its own for tests: `python -m tests.cluster up | down`.

`control_plane` builds API server, etcd and controllers from Go modules into one program, once
(`plane` has its source), starts and ends them. There is no kubelet: pods are made, admitted and
counted, and `kubelet` plays what becomes of them. `image` builds the images without a container
engine.
"""
