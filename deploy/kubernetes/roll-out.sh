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

apply settings
kubectl delete job milepost-migrate "${space[@]}" --ignore-not-found
apply migrate
kubectl wait job/milepost-migrate "${space[@]}" --for condition=complete --timeout 60m

# What an API takes in a worker must understand, so workers come first; what a worker writes an API
# hands on as it stands.
apply worker
kubectl rollout status deployment/milepost-worker "${space[@]}" --timeout 15m
# The first time it waits for a key: see README.md beside this folder.
apply api
kubectl rollout status deployment/milepost-api "${space[@]}" --timeout 15m
