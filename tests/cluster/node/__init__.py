"""Nodes of their own for tests, with real kubelets: pods run.

    nice -n 10 python -m tests.cluster.image        # the images, once: minutes, as root, on Debian
    python -m tests.cluster.node DIRECTORY          # rows from a topic to ClickHouse through pods

`tools` builds the kubelet from its Go module, once, and unpacks Debian's containerd and runc;
`namespaces` gives a process a network, mounts and process numbers of its own, in which all the
rest runs; `machine` starts containerd and the kubelet beside a control plane, `names` is the DNS,
`policies` enforces NetworkPolicies; `servers` starts Kafka and ClickHouse with TLS, users and
printed rights; `rows` rolls the manifests out and counts what arrives, with a second node in
`cut_off` and Kubeflow's Spark operator in `spark_operator`. With the process in its namespaces
everything ends.
"""
