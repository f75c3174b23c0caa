"""The Helm chart of k8s/chart: how it is made of the kustomize base, and tried."""
