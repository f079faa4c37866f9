#!/usr/bin/env bash
# Rolls a version out in the order that keeps it available: the schema, the workers, the API.
#
#   deploy/kubernetes/roll-out.sh deploy/kubernetes/overlays/keda
set -euo pipefail

overlay=${1:?which overlay? deploy/kubernetes/overlays/keda, or your own}
space=(--namespace milepost)
component=app.kubernetes.io/component
rendered=$(kubectl kustomize "$overlay")

# Applies what has one of these components.
apply() {
  kubectl apply --selector "$component in ($1)" --filename - <<<"$rendered"
}

# Whether the migration has come to this end, waiting so long for it.
has_migrated() {
  kubectl wait job/milepost-migrate "${space[@]}" --for "condition=$1" --timeout "$2"
}

apply settings
kubectl delete job milepost-migrate "${space[@]}" --ignore-not-found
apply migrate
# The job gives itself an hour. One that has failed is never complete: nobody waits on for it.
for ((tries = 0; ; tries++)); do
  if has_migrated complete 10s; then break; fi
  if has_migrated failed 0s || ((tries == 370)); then
    echo "the migration has failed: kubectl logs job/milepost-migrate ${space[*]}" >&2
    exit 1
  fi
done

# What an API takes in a worker must understand, so workers come first; what a worker writes an API
# hands on as it stands.
apply worker
kubectl rollout status deployment/milepost-worker "${space[@]}" --timeout 15m
# The first time it waits for a key: see README.md beside this folder.
apply api
kubectl rollout status deployment/milepost-api "${space[@]}" --timeout 15m
