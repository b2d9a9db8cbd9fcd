{{- define "nisse.image" -}}
{{- $i := index . 1 -}}{{- $c := index . 0 -}}
{{- if $i.digest -}}{{ $i.repository }}@{{ $i.digest }}{{- else -}}{{ $i.repository }}:{{ $i.tag | default $c.Chart.AppVersion }}{{- end -}}
{{- end }}

{{- define "nisse.labels" -}}
app.kubernetes.io/name: nisse
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "nisse.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "nisse.placement" -}}
nodeSelector: {{- toYaml (.nodeSelector | default dict) | nindent 2 }}
tolerations: {{- toYaml (.tolerations | default list) | nindent 2 }}
affinity: {{- toYaml (.affinity | default dict) | nindent 2 }}
{{- end }}

{{- define "nisse.container" -}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 2, failureThreshold: 3}
{{- end }}

{{- define "nisse.notOwnNamespace" -}}
{{- if eq .Values.agents.namespace .Release.Namespace -}}
{{- fail "agents.namespace must not be the release's namespace: keys live there, and agents must not" -}}
{{- end -}}
{{- end }}
