#!/bin/sh
# Rolls an overlay out: the doctor first, then verifiers, loader and relays, each when the one before
# runs. That is the order of an upgrade (relay/docs/upgrade.md): an older loader parks what newer
# relays write.
#
#   sh k8s/roll-out.sh k8s/overlays/small
#
# Goes no further where the doctor finds an error, and shows what it says. May be run again at any
# time, after a success and after a failure. Back is the same command with the earlier overlay, where
# only settings changed; to an earlier version see k8s/README.md#back-to-an-earlier-version.
# KUBECTL names another kubectl; ROLL_OUT_SECONDS is how long pods may take (default 600).
set -eu

overlay=${1:?"name the directory of an overlay: sh k8s/roll-out.sh k8s/overlays/small"}
seconds=${ROLL_OUT_SECONDS:-600}
doctor=batch.kubernetes.io/job-name=doctor
part_of=app.kubernetes.io/part-of=block-relay
program=app.kubernetes.io/name
is_ready='{.status.conditions[?(@.type=="Ready")].status}'
config='.spec.volumes[?(@.name=="config")].configMap.name'

kubectl() {
  command "${KUBECTL:-kubectl}" "$@"
}

in_namespace() {
  kubectl --namespace block-relay "$@"
}

fail() {
  echo "roll-out: $1" >&2
  echo "  next: $2" >&2
  exit 1
}

require_secrets() {
  for role in relay loader verifier; do
    in_namespace get secret "$role-passwords" --output name > /dev/null ||
      fail "there is no Secret $role-passwords in namespace block-relay" \
        "make it (k8s/secrets/kustomization.yaml says how), and run this again."
  done
}

# Complete or Failed, as the Job's own conditions say; empty before.
doctor_ended() {
  in_namespace get job doctor --output \
    jsonpath='{range .status.conditions[?(@.status=="True")]}{.type}{"\n"}{end}' |
    grep --extended-regexp --line-regexp 'Complete|Failed' || true
}

show_doctor() {
  in_namespace get pods --selector "$doctor" >&2
  in_namespace logs --selector "$doctor" --all-containers --prefix --tail=-1 >&2 ||
    in_namespace describe pods --selector "$doctor" >&2
}

# A Job cannot be changed, only made anew. Its own deadline (300 s) makes it fail in the end.
ask_doctor() {
  in_namespace delete job doctor --ignore-not-found --cascade=foreground
  kubectl apply --kustomize "$overlay" --selector block-relay.io/phase=before
  waited=0
  until ended=$(doctor_ended) && [ -n "$ended" ]; do
    [ "$waited" -lt 330 ] || { show_doctor; fail "the doctor has not ended after $waited s" \
      "see above why its pod does not run, and run this again."; }
    sleep 2
    waited=$((waited + 2))
  done
  if [ "$ended" = Failed ]; then
    show_doctor
    fail "the doctor failed; nothing else was applied" \
      "fix what it says above, and run this again."
  fi
}

# Waits for those pods whose owners carry these labels.
wait_for_pods() {
  for one in $(in_namespace get statefulsets,deployments --selector "$1" --output name); do
    in_namespace rollout status "$one" --timeout "${seconds}s" || {
      in_namespace get pods >&2
      in_namespace logs "$one" --all-containers --tail=20 >&2 || true
      fail "$one does not run as applied" \
        "correct the overlay and run this again; to go back, k8s/README.md#back-to-an-earlier-version"
    }
  done
}

apply_in_order() {
  # What belongs to no program, as ConfigMaps, which the pods name.
  kubectl apply --kustomize "$overlay" --selector "$program notin (relay, loader, verifier)"
  for step in verifier loader relay; do
    kubectl apply --kustomize "$overlay" --selector "$program=$step"
    wait_for_pods "$part_of,$program=$step"
  done
}

# The app that a ConfigMap's relay.toml names above its tables; nothing where it cannot be told.
app_in() {
  [ -z "$1" ] ||
    in_namespace get configmap "$1" --ignore-not-found --output 'jsonpath={.data.relay\.toml}' |
    sed -n -e '/^[[:space:]]*\[/q' \
      -e "s/^[[:space:]]*app[[:space:]]*=[[:space:]]*[\"']\([^\"']*\).*/\1/p"
}

# Whether one of these pods is ready and of the overlay's app, or of one that cannot be told: each
# is `status of Ready:name of its ConfigMap`.
one_is_ready() {
  for pod in $1; do
    case $pod in
      True:*)
        app=$(app_in "${pod#True:}")
        if [ -z "$wanted" ] || [ -z "$app" ] || [ "$app" = "$wanted" ]; then
          return 0
        fi
        ;;
    esac
  done
  return 1
}

kubectl apply --kustomize "$(dirname "$0")/namespace"
require_secrets
ask_doctor
# A loader is ready only when a relay has made its app's journal, so the first time, and the first
# time under a new app name, it cannot be waited for. What runs for another app reads nothing that
# this one's relays write. The pods say it: relays that a new version is to mend may all be unready
# beside a loader that runs, and a StatefulSet that was deleted with --cascade=orphan, and is made
# anew, counts none at first.
wanted=$(app_in "$(in_namespace get job doctor --output "jsonpath={.spec.template$config}")")
pods=$(in_namespace get pods --selector "$program in (relay, loader)" --output \
  "jsonpath={range .items[*]}$is_ready:{$config}{\"\n\"}{end}")
if one_is_ready "$pods"; then
  apply_in_order
else
  echo "roll-out: neither relay nor loader of this app is ready, so everything is applied at once"
  kubectl apply --kustomize "$overlay"
fi
wait_for_pods "$part_of"
echo "roll-out: every pod runs as applied"
