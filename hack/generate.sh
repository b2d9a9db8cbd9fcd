#!/usr/bin/env bash
# Regenerates what is made from the Go types and from config/: deep copies, CRDs, and the chart's templates of CRDs, admission
# policies and roles. The chart's copies differ in nothing but the names of the two namespaces and, for CRDs, the keep annotation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
gen=$(hack/tools/tool.sh controller-gen)
"$gen" object:headerFile=/dev/null crd:allowDangerousTypes=false paths=./api/... output:crd:artifacts:config=config/crd/bases

out=charts/nisse/templates/generated
rm -rf "$out"
mkdir -p "$out"
namespaces() {
  sed -E 's/nisse-system/{{ .Release.Namespace }}/g; s/^(.*namespace: )nisse(,|\}|$)/\1{{ .Values.agents.namespace }}\2/'
}
for f in config/crd/bases/*.yaml; do
  {
    echo '{{- if .Values.crds.install }}'
    # Texts of CEL rules and docs may hold braces that the template engine would read.
    sed -E 's/\{\{/{{ "{{" }}/g' "$f" |
      awk '/^  annotations:$/ {print; print "    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}"; next} {print}'
    echo '{{- end }}'
  } >"$out/crd-$(basename "$f" | sed 's/nisse.io_//')"
done
namespaces <config/admission/policies.yaml >"$out/admission.yaml"
shopt -s nullglob
for f in config/rbac/*.yaml; do
  [ "$(basename "$f")" = kustomization.yaml ] || namespaces <"$f" >"$out/rbac-$(basename "$f")"
done
